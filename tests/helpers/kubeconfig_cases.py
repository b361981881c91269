# SPDX-License-Identifier: Apache-2.0
"""Every field of a kubeconfig and every variable that kubectl honours, each with an example.

A case has the content of a folder and of the environment. `differs` says where gpupack differs
from kubectl; then our message has the words of `names`.
"""

import base64
import datetime as dt
import json
from dataclasses import dataclass, field
from typing import Any

BASIC = {"token": "secret"}
V1, V1BETA1 = (f"client.authentication.k8s.io/{each}" for each in ("v1", "v1beta1"))
PLUGIN = """#!/bin/sh
runs=$(($(cat "$0.runs" 2>/dev/null || echo 0) + 1))
echo "$runs" >"$0.runs"
echo "$KUBERNETES_EXEC_INFO" >>"$0.info"
echo "arguments: $*; EXTRA: $EXTRA; terminal: $(test -t 0 && echo yes || echo no)" >>"$0.saw"
sed "s/RUN/$runs/" "$0.answer"
exit "${PLUGIN_STATUS:-0}"
"""


@dataclass
class Case:
    """`files` by name; `config` is what KUBECONFIG names unless `environ` says otherwise."""

    part: str
    name: str
    files: dict[str, Any]
    environ: dict[str, str] = field(default_factory=dict)
    context: str = ""
    differs: str = ""
    names: str = ""
    pod: bool = False
    terminal: bool = False
    unknown_once: bool = False

    @property
    def title(self):
        return f"{self.part}: {self.name}"


@dataclass
class World:
    """Servers and certificates that the cases are about; PEM as text."""

    https: int
    hidden: int
    http: int
    proxy: int
    authority: str
    leaf: str
    other_authority: str
    certificate: str
    key: str

    def config(self, *, server=None, cluster=None, user=None, context=None, trusted=True, **more):
        own = {"certificate-authority-data": coded(self.authority)} if trusted else {}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"} | (context or {})}],
            "clusters": [
                {"name": "k", "cluster": {"server": server or self.server} | own | (cluster or {})}
            ],
            "users": [{"name": "u", "user": BASIC if user is None else user}],
        } | more

    @property
    def server(self):
        return f"https://localhost:{self.https}"

    @property
    def via(self):
        return f"http://127.0.0.1:{self.proxy}"


def coded(text):
    return base64.b64encode(text.encode()).decode()


def issues(version=V1, *, seconds=3600, **status):
    """Return what a command writes."""
    until = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=seconds)
    status = {"expirationTimestamp": until.strftime("%Y-%m-%dT%H:%M:%SZ")} | status
    return json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status})


def command(world, answer=None, *, cluster=None, user=None, **spec):
    """A kubeconfig whose user has a command, and the command."""
    spec = {"apiVersion": V1, "command": "./plugin", "interactiveMode": "Never"} | spec
    spec = {name: value for name, value in spec.items() if value is not None}
    return {
        "config": world.config(user={"exec": spec} | (user or {}), cluster=cluster),
        "plugin": PLUGIN,
        "plugin.answer": answer or issues(token="issued"),
    }


def id_token(seconds):
    claims = {"exp": (dt.datetime.now(dt.UTC) + dt.timedelta(seconds=seconds)).timestamp() // 1}
    parts = ({"alg": "none"}, claims)
    coded_parts = [base64.urlsafe_b64encode(json.dumps(p).encode()).rstrip(b"=") for p in parts]
    return b".".join([*coded_parts, b"x"]).decode()


def provider(name, **config):
    return {"auth-provider": {"name": name, "config": config}}


def cases(world):
    """All of them, by part."""
    return [
        *_clusters(world),
        *_users(world),
        *_commands(world),
        *_contexts(world),
        *_files(world),
        *_variables(world),
        *_pods(world),
    ]


def _clusters(w):
    def case(name, *, files=None, differs="", names="", **given):
        shown = {"config": w.config(**given)} | (files or {})
        return Case("clusters", name, shown, differs=differs, names=names)

    yield case("`server`")
    yield case("`server` with a path", server=f"{w.server}/k8s/clusters/c-1/")
    yield case("`server` by http: no credentials are sent", server=f"http://127.0.0.1:{w.http}")
    yield case("`server` without a scheme: http", server=f"127.0.0.1:{w.http}")
    yield case("`server` that is no address", server="https://:x")
    authority = {"certificate-authority": "keys/ca.crt"}
    pem = {"keys/ca.crt": w.authority}
    yield case("`certificate-authority`", cluster=authority, trusted=False, files=pem)
    yield case("`certificate-authority` that is missing", cluster=authority, trusted=False)
    yield case("`certificate-authority` twice", cluster=authority, files=pem)
    data = "certificate-authority-data"
    yield case(f"`{data}`: no base64", cluster={data: "!"}, trusted=False)
    yield case(f"`{data}`: no certificate", cluster={data: coded("x")}, trusted=False)
    yield case(f"`{data}` of another CA", cluster={data: coded(w.other_authority)}, trusted=False)
    yield case(f"`{data}`: the server's own", cluster={data: coded(w.leaf)}, trusted=False)
    yield case("no CA: the system's", trusted=False)
    skip = {"insecure-skip-tls-verify": True}
    yield case("`insecure-skip-tls-verify`", cluster=skip, trusted=False)
    yield case("`insecure-skip-tls-verify` next to a CA", cluster=skip)
    hidden = f"https://localhost:{w.hidden}"
    yield case("`tls-server-name`", server=hidden, cluster={"tls-server-name": "inside.example"})
    yield case(
        "`tls-server-name` that the server has not", cluster={"tls-server-name": "b.example"}
    )
    yield case("`proxy-url`", cluster={"proxy-url": w.via})
    yield case(
        "`proxy-url` with a password",
        cluster={"proxy-url": w.via.replace("//", "//me:secret@")},
    )
    yield case(
        "`proxy-url` of SOCKS",
        cluster={"proxy-url": w.via.replace("http", "socks5")},
        differs="refused: gpupack uses http and https proxies",
        names="proxy-url",
    )
    yield case("`proxy-url` of another scheme", cluster={"proxy-url": "ftp://127.0.0.1:1"})
    yield case(
        "`disable-compression: false`",
        cluster={"disable-compression": False},
        differs="gpupack never asks for compressed answers",
    )
    yield case("`disable-compression: true`", cluster={"disable-compression": True})
    yield case("`extensions`", cluster={"extensions": [{"name": "x", "extension": {"a": 1}}]})
    yield case("a field of a wrong type", cluster={"server": 5})
    yield case("a field that is not known", cluster={"colour": "red"})


def _users(w):
    def case(name, *, files=None, differs="", names="", **user):
        shown = {"config": w.config(user={k.replace("_", "-"): v for k, v in user.items()})}
        return Case("users", name, shown | (files or {}), differs=differs, names=names)

    token_file = {"tokenFile": "keys/token"}
    token = {"keys/token": "of-the-file\n"}
    pair = {"keys/a.crt": w.certificate, "keys/a.key": w.key}
    by_file = {"client_certificate": "keys/a.crt", "client_key": "keys/a.key"}
    by_data = {
        "client_certificate_data": coded(w.certificate),
        "client_key_data": coded(w.key),
    }
    yield case("`token`", token="secret")
    yield case("`tokenFile`", files=token, **token_file)
    yield case("`tokenFile` next to `token`", files=token, token="secret", **token_file)
    yield case("`tokenFile` that is missing", **token_file)
    yield case("`tokenFile` that is missing, next to `token`", token="secret", **token_file)
    yield case("`client-certificate-data`, `client-key-data`", **by_data)
    yield case("`client-certificate`, `client-key`", files=pair, **by_file)
    yield case("`client-certificate` and its data", files=pair, **by_file, **by_data)
    yield case("`client-certificate` that is missing", **by_file)
    yield case(
        "`client-certificate` without a key",
        client_certificate_data=by_data["client_certificate_data"],
    )
    yield case("`client-key` of another", **by_data | {"client_key_data": coded(w.leaf)})
    yield case("`client-certificate` next to `token`", token="secret", **by_data)
    yield case("`username`, `password`", username="jörg", password="pass:word")
    yield case("`username` next to `token`", username="a", password="b", token="secret")
    identity = {"as": "jörg"}
    more = {"as-uid": "17", "as-groups": ["dev", "ops"], "as-user-extra": {"Scope/é": ["a", "b"]}}
    yield case("`as`", token="secret", **identity)
    yield case("`as-uid`, `as-groups`, `as-user-extra`", token="secret", **identity, **more)
    yield case("`as` next to a certificate", **identity, **by_data)
    yield case("`as-groups` without `as`", token="secret", **{"as-groups": ["dev"]})
    yield case("`as-uid` without `as`", token="secret", **{"as-uid": "17"})
    yield case(
        "`auth-provider: oidc` with an ID token",
        **provider(
            "oidc",
            **{"id-token": id_token(600), "client-id": "a", "idp-issuer-url": "https://a.invalid"},
        ),
        differs="the same with a kubectl that has this provider built in, as releases have",
    )
    yield case(
        "`auth-provider: oidc` whose ID token has ended",
        **provider(
            "oidc",
            **{"id-token": id_token(-600), "client-id": "a", "idp-issuer-url": "https://a.invalid"},
        ),
        names="does not renew it",
        differs="refused: kubectl renews it, gpupack uses what kubectl has written",
    )
    yield case("`auth-provider: gcp`", **provider("gcp"), names="gcp")
    yield case("`auth-provider: azure`", **provider("azure"), names="azure")
    yield case("`extensions`", token="secret", extensions=[{"name": "x", "extension": {}}])
    yield case("no credentials", names="no credentials")


def _commands(w):
    def case(name, files, *, environ=None, **given):
        return Case("users, exec", name, files, environ or {}, **given)

    yield case("`command`, `apiVersion` v1", command(w))
    yield case("`command` on PATH", command(w, command="plugin"), environ={"PATH": "FOLDER:PATH"})
    yield case(
        "`command` that is not found, `installHint`",
        command(w, command="no-such-command", installHint="Install it by hand."),
        names="Install it by hand",
    )
    yield case("`command` that fails", command(w), environ={"PLUGIN_STATUS": "3"})
    yield case("no `command`", command(w, command=""))
    beta = issues(V1BETA1, token="issued")
    yield case("`apiVersion` v1beta1", command(w, beta, apiVersion=V1BETA1, interactiveMode=None))
    yield case("`apiVersion` v1alpha1", command(w, apiVersion=V1.replace("v1", "v1alpha1")))
    yield case("no `apiVersion`", command(w, apiVersion=None))
    yield case("another `apiVersion` is written", command(w, beta))
    yield case("nothing is written", command(w, "{}"))
    yield case("neither token nor certificate", command(w, issues()))
    yield case(
        "`args`, `env`",
        command(
            w,
            args=["a", "b c"],
            env=[{"name": "EXTRA", "value": "more"}, {"name": "PATH", "value": "/bin"}],
        ),
    )
    yield case(
        "a certificate is issued",
        command(w, issues(clientCertificateData=w.certificate, clientKeyData=w.key)),
    )
    yield case(
        "a certificate without a key", command(w, issues(clientCertificateData=w.certificate))
    )
    yield case(
        "`provideClusterInfo`",
        command(
            w,
            provideClusterInfo=True,
            cluster={
                "disable-compression": True,
                "tls-server-name": "localhost",
                "proxy-url": w.via,
                "extensions": [
                    {"name": "client.authentication.k8s.io/exec", "extension": {"a": {"b": 1}}}
                ],
            },
        ),
    )
    yield case("no `interactiveMode`", command(w, interactiveMode=None))
    yield case("`interactiveMode: Sometimes`", command(w, interactiveMode="Sometimes"))
    for mode in ("Never", "IfAvailable", "Always"):
        yield case(
            f"`interactiveMode: {mode}`, a terminal",
            command(w, interactiveMode=mode),
            terminal=True,
        )
        yield case(f"`interactiveMode: {mode}`, none", command(w, interactiveMode=mode))
    yield case("next to `token`: not run", command(w, user=BASIC))
    pair = {"client-certificate-data": coded(w.certificate), "client-key-data": coded(w.key)}
    yield case("next to a certificate: not run", command(w, user=pair))
    yield case("next to `auth-provider`", command(w, user=provider("oidc")))
    yield case("next to `as`", command(w, user={"as": "ann"}))
    yield case(
        "the server does not know the token",
        command(w, issues(token="issued-RUN")),
        unknown_once=True,
        differs="the request is sent once more with the next token",
    )
    policy = {"apiVersion": "kubectl.config.k8s.io/v1beta1", "kind": "Preference"}
    for name, allowed in (
        ("DenyAll", None),
        ("Allowlist", ["true"]),
        ("Allowlist", ["FOLDER/plugin"]),
    ):
        listed = {"credentialPluginAllowlist": [{"command": each} for each in allowed or ()]}
        policy |= {"credentialPluginPolicy": name} | (listed if allowed else {})
        which = f" of {'others' if allowed == ['true'] else 'it'}" if allowed else ""
        yield case(
            f"kuberc `credentialPluginPolicy: {name}`{which}",
            command(w) | {".kube/kuberc": dict(policy)},
        )


def _contexts(w):
    def case(name, config, **given):
        return Case("contexts", name, {"config": config}, **given)

    yield case("`namespace`", w.config(context={"namespace": "team"}))
    yield case("`extensions`", w.config(context={"extensions": [{"name": "x", "extension": {}}]}))
    two = w.config()
    two["contexts"].append(
        {"name": "other", "context": {"cluster": "k", "user": "u", "namespace": "other"}}
    )
    yield case("`--context`", two, context="other")
    yield case("`--context` that there is not", two, context="nosuch")
    yield case("`current-context` that there is not", w.config(**{"current-context": "nosuch"}))
    yield case("no `current-context`", w.config(**{"current-context": ""}))
    yield case("a `cluster` that there is not", w.config(context={"cluster": "nosuch"}))
    yield case("a `user` that there is not", w.config(context={"user": "nosuch"}))


def _files(w):
    def case(name, files, kubeconfig="FOLDER/config", **given):
        return Case("KUBECONFIG", name, files, {"KUBECONFIG": kubeconfig}, **given)

    both = "FOLDER/config:FOLDER/more/config"
    other = w.config(user={"token": "other"}, context={"namespace": "other"})
    other["users"][0]["user"]["as"] = "ann"
    contexts_alone = {"contexts": w.config()["contexts"], "current-context": "c"}
    rest = {k: v for k, v in w.config().items() if k in {"clusters", "users"}}
    by_path = {
        "clusters": w.config()["clusters"],
        "users": [{"name": "u", "user": {"tokenFile": "token"}}],
    }
    yield case("two files: the first of a name", {"config": w.config(), "more/config": other}, both)
    yield case("two files, each a part", {"config": contexts_alone, "more/config": rest}, both)
    yield case(
        "a path in the second file",
        {"config": contexts_alone, "more/config": by_path, "more/token": "near"},
        both,
    )
    yield case(
        "`current-context` of the first that has one",
        {"config": w.config(**{"current-context": ""}), "more/config": other},
        both,
    )
    yield case("a file that is missing", {"config": w.config()}, "FOLDER/nosuch:FOLDER/config")
    yield case("an empty name", {"config": w.config()}, ":FOLDER/config:")
    yield case("all are missing", {}, "FOLDER/nosuch")
    yield case("a second file that is no YAML", {"config": w.config(), "more/config": "a: ["}, both)
    yield case("an empty file", {"config": "", "more/config": w.config()}, both)
    yield case("only an empty file", {"config": ""})
    yield case("a file that is a list", {"config": [1]})
    twice = w.config()
    twice["users"] = [*twice["users"], {"name": "u", "user": {"token": "second"}}]
    yield case("a name twice in one file", {"config": twice})
    date = w.config(user={})
    yield case(
        "a date as a token",
        {"config": json.dumps(date).replace('"user": {}', '"user": {"token": 2026-01-01}')},
    )
    yield case("not set: `~/.kube/config`", {".kube/config": w.config()}, "")


def _variables(w):
    named = w.config(
        server=f"https://api.example.invalid:{w.https}", cluster={"tls-server-name": "localhost"}
    )
    plain = w.config(server="http://api.example.invalid")

    def case(name, environ, config=named, **given):
        given = {"files": {"config": config}} | given
        return Case("variables", name, environ=environ, **given)

    yield case("`HTTPS_PROXY`", {"HTTPS_PROXY": w.via})
    yield case("`https_proxy`", {"https_proxy": w.via.removeprefix("http://")})
    yield case(
        "`HTTPS_PROXY` goes before `https_proxy`",
        {"HTTPS_PROXY": w.via, "https_proxy": "http://127.0.0.1:1"},
    )
    yield case(
        "`HTTPS_PROXY`, a server on loopback", {"HTTPS_PROXY": "http://127.0.0.1:1"}, w.config()
    )
    yield case("`HTTP_PROXY`, an https server", {"HTTP_PROXY": w.via}, w.config())
    yield case("`HTTP_PROXY`, an http server", {"HTTP_PROXY": w.via}, plain)
    yield case("`ALL_PROXY`", {"ALL_PROXY": w.via}, w.config())
    proxied = w.config(
        server=f"https://api.example.invalid:{w.https}",
        cluster={"tls-server-name": "localhost", "proxy-url": w.via},
    )
    yield case(
        "`proxy-url` goes before `HTTPS_PROXY`", {"HTTPS_PROXY": "http://127.0.0.1:1"}, proxied
    )
    for excluded in (
        "example.invalid",
        ".example.invalid",
        "*.example.invalid",
        f"api.example.invalid:{w.https}",
        "*",
    ):
        shown = excluded.replace(str(w.https), "PORT")
        yield case(f"`NO_PROXY={shown}`", {"HTTPS_PROXY": w.via, "NO_PROXY": excluded})
    for other in ("ample.invalid", "api.example.invalid:1", "10.0.0.0/8", "b.invalid, c.invalid"):
        yield case(f"`NO_PROXY={other}`", {"HTTPS_PROXY": w.via, "NO_PROXY": other})
    yield case("`no_proxy`", {"HTTPS_PROXY": w.via, "no_proxy": "invalid"})
    yield case(
        "`HTTPS_PROXY` of SOCKS",
        {"HTTPS_PROXY": w.via.replace("http", "socks5")},
        differs="refused: gpupack uses http and https proxies",
        names="HTTPS_PROXY",
    )
    untrusted = w.config(trusted=False)
    yield case(
        "`SSL_CERT_FILE`",
        {"SSL_CERT_FILE": "FOLDER/ca.crt"},
        files={"config": untrusted, "ca.crt": w.authority},
    )
    yield case(
        "`KUBERNETES_MASTER`, no kubeconfig",
        {"KUBERNETES_MASTER": f"http://127.0.0.1:{w.http}"},
        files={},
    )
    yield case(
        "`KUBERNETES_MASTER`, a cluster has a server",
        {"KUBERNETES_MASTER": "http://127.0.0.1:1"},
        w.config(),
    )
    yield case("`POD_NAMESPACE` outside a pod", {"POD_NAMESPACE": "team"}, w.config())
    yield case(
        "`NETRC`",
        {"NETRC": "FOLDER/netrc"},
        files={
            "config": w.config(
                user={
                    "client-certificate-data": coded(w.certificate),
                    "client-key-data": coded(w.key),
                }
            ),
            "netrc": "machine localhost login a password b",
        },
    )


def _pods(w):
    pod = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(w.https)}

    def case(name, files, **environ):
        return Case("in a pod", name, files, {"KUBECONFIG": ""} | pod | environ, pod=True)

    yield case("the service account", {})
    yield case("`POD_NAMESPACE`", {}, POD_NAMESPACE="of-the-variable")
    yield case(
        "a kubeconfig goes before it", {".kube/config": w.config(context={"namespace": "n"})}
    )
    yield case("a kubeconfig without a namespace", {".kube/config": w.config()})
    yield case(
        "`namespace: default` is meant",
        {".kube/config": w.config(context={"namespace": "default"})},
    )
    yield case("KUBECONFIG names no file", {}, KUBECONFIG="FOLDER/nosuch")
