# SPDX-License-Identifier: Apache-2.0
"""Times in the format of Kubernetes' metav1.Time, in UTC and whole seconds."""

import datetime as dt


def format_time(moment: dt.datetime) -> str:
    """Format a time; cut off fractions of a second."""
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_seconds(seconds: float) -> str:
    """Format a time that is given in seconds since the epoch."""
    return format_time(dt.datetime.fromtimestamp(seconds, dt.UTC))
