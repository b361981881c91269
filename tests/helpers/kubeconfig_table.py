# SPDX-License-Identifier: Apache-2.0
"""The table of docs/kubeconfig.md: kubectl's request and ours for every case.

    .dev/venv/bin/python tests/helpers/kubeconfig_table.py .dev/bin/kubectl

Each case is a folder; both programs run in it as processes, against one server on loopback.
"""

import contextlib
import ipaddress
import json
import os
import pathlib
import pty
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
from dataclasses import dataclass

from client_ca import ClientCa
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import ExtendedKeyUsageOID
from kubeconfig_cases import World, cases
from recording_server import Proxy, Recording, running

OURS = pathlib.Path(__file__).with_name("our_request.py")
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
SECONDS = 60


@dataclass
class Seen:
    """Actions of a program: its requests, its proxies, the command's input, or its message."""

    requests: list
    proxied: list
    command: list
    message: str
    is_about_compression: bool = False

    @property
    def sent(self):
        return bool(self.requests)

    def compared(self, *, compression):
        """Return what both programs must have in common: their messages differ."""
        ignored = set() if compression else {"accept-encoding"}
        asked = [{k: v for k, v in each.items() if k not in ignored} for each in self.requests]
        return asked, self.proxied if self.sent else [], self.command if self.sent else []


class Bench:
    """Both programs and everything they talk to."""

    def __init__(self, kubectl, folder):
        self.kubectl, self.folder = kubectl, folder
        self.numbered = 0

    @classmethod
    @contextlib.contextmanager
    def made(cls, kubectl):
        with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
            folder = pathlib.Path(name)
            bench = cls(kubectl, folder)
            clients, servers = ClientCa("clients"), ClientCa("servers")
            contexts = [
                _server_context(servers, clients, folder / each, names)
                for each, names in (("a", ["localhost", "127.0.0.1"]), ("b", ["inside.example"]))
            ]
            bench.https, bench.hidden = (
                stack.enter_context(running(Recording(each))) for each in contexts
            )
            bench.http = stack.enter_context(running(Recording()))
            bench.proxy = stack.enter_context(running(Proxy(bench.https.port, bench.http.port)))
            certificate, key = clients.written(folder / "client", "ann", "dev")
            bench.world = World(
                https=bench.https.port,
                hidden=bench.hidden.port,
                http=bench.http.port,
                proxy=bench.proxy.port,
                authority=servers.pem,
                leaf=(folder / "a" / "tls.crt").read_text(),
                other_authority=clients.pem,
                certificate=certificate.read_text(),
                key=key.read_text(),
            )
            bench.ours = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, str(OURS), "--serve"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
                )
            )
            yield bench
            bench.ours.stdin.close()

    def cases(self):
        return cases(self.world)

    def by_kubectl(self, case):
        context = [f"--context={case.context}"] if case.context else []
        return self._run(case, [self.kubectl, "create", "token", "x", *context])

    def by_us(self, case):
        if case.pod or case.terminal:
            return self._run(case, [sys.executable, str(OURS), *filter(None, [case.context])])
        return self._run(case, None)

    def _run(self, case, command):
        """Run a command in a process; None: in the process that starts ours."""
        self.numbered += 1
        folder = self.folder / f"case-{self.numbered}"
        _write(folder, case.files)
        servers = (self.https, self.hidden, self.http)
        for server in servers:
            server.requests.clear()
            server.answer = _unknown_once() if case.unknown_once else lambda request: 200
        self.proxy.asked.clear()
        message = self._process(case, folder, command) if command else self._forked(case, folder)
        # A plain client may look at what the server has first; only this call is compared.
        requests = [each for server in servers for each in server.requests]
        return Seen(
            [each for each in requests if each["method"] == "POST"],
            sorted(set(self.proxy.asked)),
            _command_saw(folder),
            message.replace(str(folder), "FOLDER"),
        )

    def _forked(self, case, folder):
        errors = folder / "errors"
        asked = {"environ": _environ(case, folder), "context": case.context}
        line = json.dumps(asked | {"folder": str(folder), "errors": str(errors)})
        print(line, file=self.ours.stdin, flush=True)
        assert self.ours.stdout.readline() == "done\n"
        return errors.read_text()

    def _process(self, case, folder, command):
        environ = _environ(case, folder)
        if case.pod:
            command = _in_a_pod(self.world, folder, command)
        with contextlib.ExitStack() as stack:
            given = subprocess.DEVNULL
            if case.terminal:
                ours, theirs = pty.openpty()
                stack.callback(os.close, ours)
                stack.callback(os.close, theirs)
                given = theirs
            done = subprocess.run(
                command,
                env=environ,
                cwd=folder,
                stdin=given,
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
        return done.stderr if done.returncode else ""


def _environ(case, folder):
    path = os.environ["PATH"]
    own = {
        "HOME": str(folder),
        "PATH": path,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "KUBECONFIG": str(folder / "config"),
    }
    more = {
        name: value.replace("FOLDER", str(folder)).replace(":PATH", f":{path}")
        for name, value in case.environ.items()
    }
    return own | more


def _write(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, str) else json.dumps(content)
        path.write_text(text.replace("FOLDER", str(folder)))
        if name == "plugin":
            path.chmod(0o755)
    folder.mkdir(exist_ok=True)


def _unknown_once():
    left = [401]
    return lambda request: left.pop() if left else 200


def _command_saw(folder):
    """Return arguments and environment of each run; JSON is compared by its content."""
    info, saw = folder / "plugin.info", folder / "plugin.saw"
    if not saw.exists():
        return []
    readable = [_readable(each) for each in info.read_text().splitlines() if each]
    return sorted({*zip(saw.read_text().splitlines(), readable, strict=True)})


def _readable(line):
    found = json.loads(line)
    found["spec"].get("cluster", {}).pop("certificate-authority-data", None)
    return json.dumps(found, sort_keys=True)


def can_be_a_pod():
    """Return whether a folder of this machine can be given another content for one process."""
    unshare = shutil.which("unshare")
    tried = unshare and subprocess.run(
        [unshare, "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", "/var/run"],
        capture_output=True,
        check=False,
    )
    return bool(tried) and not tried.returncode


def _in_a_pod(world, folder, command):
    account = folder / "account"
    _write(account, {"token": "of-the-pod", "ca.crt": world.authority, "namespace": "of-the-pod"})
    script = (
        f'mount -t tmpfs none /var/run && mkdir -p {ACCOUNT} && cp "$0"/* {ACCOUNT}/ && exec "$@"'
    )
    unshare = ["unshare", "--map-root-user", "--mount", "sh", "-c", script, str(account)]
    return [*unshare, *command]


def _server_context(authority, clients, folder, names):
    certificate, key = _for_names(authority, names)
    folder.mkdir()
    (folder / "tls.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8
    secret = serialization.NoEncryption()
    (folder / "tls.key").write_bytes(key.private_bytes(serialization.Encoding.PEM, form, secret))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    context.load_verify_locations(cadata=clients.pem)
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


def _for_names(authority, names):
    certificate, key = authority.signed("server", usage=ExtendedKeyUsageOID.SERVER_AUTH)
    alternatives = [
        x509.IPAddress(ipaddress.ip_address(each)) if each[0].isdigit() else x509.DNSName(each)
        for each in names
    ]
    builder = (
        x509.CertificateBuilder()
        .subject_name(certificate.subject)
        .issuer_name(certificate.issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(certificate.not_valid_before_utc)
        .not_valid_after(certificate.not_valid_after_utc)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    )
    return builder.sign(authority.key, hashes.SHA256()), key


def row(case, theirs, ours):
    """A line of the table: the case, kubectl's request, ours, and what differs."""
    same = theirs.compared(compression=False) == ours.compared(compression=False)
    verdict = case.differs or ("the same" if ours.sent else "refused by both")
    if not same and not case.differs:
        verdict = "DIFFERS"
    return f"| {case.name} | {_shown(theirs)} | {_shown(ours)} | {verdict} |"


def _shown(seen):
    """Return what identifies a request; ports and encoded texts change with each run."""
    if not seen.sent:
        return "no request"
    last = seen.requests[-1]
    path = last["path"].removesuffix("/serviceaccounts/x/token")
    authorization = re.sub(r"[\w-]{20,}\.[\w.-]+", "ID-TOKEN", last["authorization"])
    parts = [
        *([f"`{path}`"] if path != "/api/v1/namespaces/default" else []),
        *([f"`{authorization}`"] if authorization else []),
        *([f"certificate `{last['certificate']}`"] if last["certificate"] else []),
        *(f"`{each}`" for each in last["impersonate"]),
        *([f"SNI `{last['sni']}`"] if last["sni"] not in {"", "localhost"} else []),
        *(f"by proxy: `{re.sub(r':[0-9]+', ':PORT', each)}`" for each in seen.proxied),
        *(
            ["compressed"]
            if last["accept-encoding"] == "gzip" and seen.is_about_compression
            else []
        ),
        *([f"{len(seen.requests)} requests"] if len(seen.requests) > 1 else []),
    ]
    return ", ".join(parts) or "a request"


def table(kubectl):
    """All lines."""
    yield f"By {_version(kubectl)}, part by part:"
    with Bench.made(kubectl) as bench:
        part = ""
        for case in bench.cases():
            if case.pod and not can_be_a_pod():
                continue
            if case.part != part:
                part = case.part
                yield f"\n### {part[0].upper()}{part[1:]}\n"
                yield "| | kubectl | gpupack | |\n|---|---|---|---|"
            theirs, ours = bench.by_kubectl(case), bench.by_us(case)
            for each in (theirs, ours):
                each.is_about_compression = "compression" in case.name
            yield row(case, theirs, ours)


def _version(kubectl):
    done = subprocess.run(
        [kubectl, "version", "--client"], capture_output=True, text=True, check=True
    )
    return "kubectl " + done.stdout.split()[2].partition("-")[0]


if __name__ == "__main__":
    page = pathlib.Path(__file__).parents[2] / "docs" / "kubeconfig.md"
    text = page.read_text()
    before, mark, _ = text.partition("<!-- table -->\n")
    lines = list(table(str(pathlib.Path(sys.argv[1]).resolve())))
    page.write_text(f"{before}{mark}\n" + "\n".join(lines) + "\n")
    sys.exit(any(each.endswith("| DIFFERS |") for each in lines))
