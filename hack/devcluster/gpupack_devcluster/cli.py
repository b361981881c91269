# SPDX-License-Identifier: Apache-2.0
"""The command line: one command for each method of the driver."""

import logging
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

from gpupack_devcluster import build as builder
from gpupack_devcluster import controllers as others
from gpupack_devcluster.cluster import Cluster
from gpupack_devcluster.driver import ClusterDriver
from gpupack_devcluster.errors import DevclusterError
from gpupack_devcluster.kind import KindCluster
from gpupack_devcluster.kubectl import Kubectl
from gpupack_devcluster.settings import ClusterSettings, Paths


class OneLineErrors(click.Group):
    """A command group that reports our errors in one line; any other error keeps its traceback."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except DevclusterError as error:
            raise click.ClickException(str(error)) from error


@dataclass(frozen=True)
class Session:
    """The settings and the driver of a command."""

    settings: ClusterSettings
    cluster: ClusterDriver


DRIVERS: dict[str, Callable[[ClusterSettings], ClusterDriver]] = {
    "devcluster": Cluster,
    "kind": KindCluster,
}
pass_session = click.make_pass_decorator(Session)


@click.group(cls=OneLineErrors, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--state",
    type=click.Path(path_type=Path, file_okay=False, resolve_path=True),
    default=".dev",
    show_default=True,
    help="Folder for binaries, images, logs, kubeconfig and the cluster's data.",
)
@click.option("--masquerade", is_flag=True, help="Let pods reach beyond this machine.")
@click.option(
    "--driver",
    type=click.Choice(list(DRIVERS)),
    default="devcluster",
    show_default=True,
    envvar="CLUSTER",
    show_envvar=True,
    help="Our own nodes on this host's kernel, or plain kind.",
)
@click.pass_context
def main(context: click.Context, state: Path, driver: str, *, masquerade: bool) -> None:
    """Run a real multi-node Kubernetes cluster on this Linux host, without Docker."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    settings = ClusterSettings(paths=Paths(state), masquerade=masquerade)
    context.obj = Session(settings, DRIVERS[driver](settings))


@main.command()
@click.option("--only", metavar="TARGET", help=f"One of: {', '.join(builder.TARGETS)}.")
@pass_session
def build(session: Session, only: str | None) -> None:
    """Build the binaries from Go modules; skips what is up to date."""
    builder.build(session.settings.paths.bin, [only] if only else [])


@main.command()
@click.option("--nodes", default=2, show_default=True, help="Real nodes.")
@click.option("--kwok-nodes", default=0, show_default=True, help="Simulated nodes.")
@pass_session
def up(session: Session, nodes: int, kwok_nodes: int) -> None:
    """Start what is not running."""
    session.cluster.up(nodes=nodes, kwok_nodes=kwok_nodes)
    click.echo(f"export KUBECONFIG={session.cluster.kubeconfig}")


@main.command()
@pass_session
def down(session: Session) -> None:
    """Stop everything; the cluster's data stays for the next `up`."""
    session.cluster.down()


@main.command()
@pass_session
def reset(session: Session) -> None:
    """Stop everything and delete the cluster's data."""
    session.cluster.reset()


@main.command()
@pass_session
def status(session: Session) -> None:
    """Show what runs."""
    for line in session.cluster.describe() or ["down"]:
        click.echo(line)


@main.command()
@click.argument("component")
@click.option("-f", "--follow", is_flag=True, help="Go on as the log grows.")
@pass_session
def logs(session: Session, component: str, *, follow: bool) -> None:
    """Show the log of COMPONENT: etcd, gpupack-1/kubelet, or kubelet for all nodes."""
    folder = session.settings.paths.log
    found = sorted({*folder.glob(f"{component}.log"), *folder.glob(f"*/{component}.log")})
    if not found:
        known = sorted(str(p.relative_to(folder).with_suffix("")) for p in folder.rglob("*.log"))
        raise click.ClickException(f"no log of {component}: {', '.join(known)}")
    command = ["tail", "-n", "200", *(["-F"] if follow else []), *map(str, found)]
    os.execvp(command[0], command)  # noqa: S606 - tail takes over the terminal


@main.command()
@click.argument("images", nargs=-1, required=True, metavar="IMAGE...")
@pass_session
def load(session: Session, images: tuple[str, ...]) -> None:
    """Give images of the local store, or archives (FILE.tar), to every node."""
    session.cluster.load(images)


@main.command()
@click.argument("switch", type=click.Choice(["on", "off"]))
@click.argument("node")
@pass_session
def power(session: Session, switch: str, node: str) -> None:
    """Cut the power of a node, or boot it."""
    if switch == "off":
        session.cluster.power_off(node)
    else:
        session.cluster.power_on(node)


@main.command()
@click.argument("target", metavar="NODE|host")
@click.argument("component")
@pass_session
def kill(session: Session, target: str, component: str) -> None:
    """`kill -9` a daemon of a node or of the host."""
    session.cluster.kill(target, component)


@main.command()
@click.argument("target", metavar="NODE|host")
@click.argument("component")
@pass_session
def start(session: Session, target: str, component: str) -> None:
    """Start a daemon that is not running."""
    session.cluster.start(target, component)


@main.command(name="exec", context_settings={"ignore_unknown_options": True})
@click.argument("node")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@pass_session
def execute(session: Session, node: str, command: tuple[str, ...]) -> None:
    """Run COMMAND inside a node, on this terminal."""
    words = [*session.cluster.entry(node), *command]
    os.environ["PATH"] = f"{session.settings.paths.bin}:{os.environ['PATH']}"
    os.execvp(words[0], words)  # noqa: S606 - the command takes over the terminal


names_of_controllers = click.argument(
    "names",
    nargs=-1,
    required=True,
    metavar="CONTROLLER...",
    type=click.Choice([*others.CONTROLLERS]),
)


@main.group()
def controllers() -> None:
    """Install controllers of other projects: JobSet, Kueue, KubeRay, LeaderWorkerSet, Trainer."""


@controllers.command()
@names_of_controllers
@pass_session
def install(session: Session, names: tuple[str, ...]) -> None:
    """Install controllers and those that they need; their image must be loaded."""
    others.install(names, session.settings.paths, _kubectl(session))


@controllers.command()
@names_of_controllers
@pass_session
def remove(session: Session, names: tuple[str, ...]) -> None:
    """Delete controllers, their definitions and their objects."""
    others.remove(names, session.settings.paths, _kubectl(session))


def _kubectl(session: Session) -> Kubectl:
    return Kubectl(session.settings.paths.bin / "kubectl", session.cluster.kubeconfig)
