# SPDX-License-Identifier: Apache-2.0
from fixtures import *
from tenants import resident, tenant

__all__ = ["resident", "tenant"]
