# SPDX-License-Identifier: Apache-2.0
"""Objects of the chart for Prometheus and Grafana."""

import json
import pathlib

import pytest
import yaml

ROOT = pathlib.Path(__file__).parents[3]
FILES = ROOT / "charts/gpupack/files/monitoring"
ON = ("monitoring.enabled=true", "api.enabled=true")
PARTS = ("scheduler", "operator", "agent", "api")
PODS = {
    "scheduler": ("Deployment", "gpupack-scheduler"),
    "operator": ("Deployment", "gpupack-operator"),
    "agent": ("DaemonSet", "gpupack-agent"),
    "api": ("Deployment", "gpupack-api"),
}


def monitor(rendered, part):
    spec = rendered.objects["PodMonitor", f"gpupack-{part}"]["spec"]
    (endpoint,) = spec["podMetricsEndpoints"]
    return spec, endpoint


def pod(rendered, part):
    return rendered.objects[PODS[part]]["spec"]["template"]


def environment(container):
    return {each["name"]: each.get("value") for each in container["env"]}


def test_by_default_there_are_no_monitoring_objects_and_no_metrics_port(render):
    rendered = render()
    kinds = {kind for kind, _ in rendered.objects}
    assert not kinds & {"PodMonitor", "ServiceMonitor", "PrometheusRule"}
    assert ("Secret", "gpupack-metrics-certificate") not in rendered.objects
    operator = rendered.container("Deployment", "gpupack-operator", "operator")
    assert environment(operator)["GPUPACK_METRICS_PORT"] == "0"
    assert "ports" not in operator


@pytest.mark.parametrize("part", PARTS)
def test_a_monitor_refers_to_existing_pods_port_certificate_and_token(part, render):
    rendered = render(*ON)
    spec, endpoint = monitor(rendered, part)
    template = pod(rendered, part)
    wanted = spec["selector"]["matchLabels"].items()
    assert wanted <= template["metadata"]["labels"].items()
    ports = {
        port["name"]: port["containerPort"]
        for container in template["spec"]["containers"]
        for port in container.get("ports", ())
    }
    assert endpoint["port"] in ports
    assert (endpoint["scheme"], endpoint["path"]) == ("https", "/metrics")
    ca = endpoint["tlsConfig"]["ca"]["secret"]
    assert (ca["key"], ("Secret", ca["name"]) in rendered.objects) == ("ca.crt", True)
    volumes = [each.get("secret", {}).get("secretName") for each in template["spec"]["volumes"]]
    assert ca["name"] in volumes
    token = endpoint["authorization"]["credentials"]["name"]
    assert rendered.objects["Secret", token]["type"] == "kubernetes.io/service-account-token"


@pytest.mark.parametrize("part", PARTS)
def test_the_scrape_file_matches_the_monitors(part, render):
    (job,) = (
        each
        for each in yaml.safe_load((FILES / "scrape.yaml").read_text())["scrape_configs"]
        if each["job_name"] == f"gpupack-{part}"
    )
    spec, endpoint = monitor(render(*ON), part)
    assert job["tls_config"]["server_name"] == endpoint["tlsConfig"]["serverName"]
    secret = endpoint["tlsConfig"]["ca"]["secret"]["name"].removesuffix("-certificate")
    assert job["tls_config"]["ca_file"] == f"/etc/gpupack-ca/{secret}.crt"
    assert job["honor_labels"] == endpoint["honorLabels"]
    ((selector,),) = ([each["label"]] for each in job["kubernetes_sd_configs"][0]["selectors"])
    component = spec["selector"]["matchLabels"]["app.kubernetes.io/component"]
    assert selector == f"app.kubernetes.io/component={component}"
    assert {"targetLabel": "job", "replacement": job["job_name"]} in endpoint["relabelings"]


def test_the_metrics_account_may_only_get_metrics(render):
    rendered = render(*ON)
    bindings = [
        each
        for (kind, _), each in rendered.objects.items()
        if kind.endswith("RoleBinding")
        and {"gpupack-metrics"} == {subject["name"] for subject in each["subjects"]}
    ]
    assert [each["roleRef"]["name"] for each in bindings] == ["gpupack-metrics-reader"]
    (rule,) = rendered.objects["ClusterRole", "gpupack-metrics-reader"]["rules"]
    assert rule == {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}


def test_a_token_secret_replaces_the_charts_token(render):
    rendered = render(*ON, 'monitoring.tokenSecret="mine"')
    _, endpoint = monitor(rendered, "agent")
    assert endpoint["authorization"]["credentials"]["name"] == "mine"
    assert ("ServiceAccount", "gpupack-metrics") not in rendered.objects


def test_monitors_have_the_labels_and_interval_of_the_values(render):
    rendered = render(*ON, 'monitoring.labels={"release":"p"}', 'monitoring.interval="15s"')
    for kind, name in rendered.objects:
        if kind in {"PodMonitor", "PrometheusRule"}:
            assert rendered.objects[kind, name]["metadata"]["labels"]["release"] == "p"
    assert monitor(rendered, "api")[1]["interval"] == "15s"


def test_rules_are_those_of_the_file_with_the_runbook_url_of_the_values(render):
    where = 'monitoring.rules.runbookUrl="https://wiki.example/gpupack/"'
    made = render(*ON, where).objects["PrometheusRule", "gpupack"]["spec"]["groups"]
    file = yaml.safe_load((FILES / "rules.yaml").read_text())["groups"]
    for rule in (rule for group in file for rule in group["rules"] if "alert" in rule):
        url = f"https://wiki.example/gpupack/{rule['alert']}.md"
        rule["annotations"]["runbook_url"] = url
    assert made == file


def test_the_dashboard_is_a_configmap_with_the_label_of_grafanas_sidecar(render):
    made = render(*ON).objects["ConfigMap", "gpupack-dashboard"]
    assert made["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert made["data"]["gpupack.json"].strip() == (FILES / "dashboard.json").read_text().strip()
    off = render(*ON, "monitoring.dashboard.enabled=false", "monitoring.rules.enabled=false")
    assert ("ConfigMap", "gpupack-dashboard") not in off.objects
    assert ("PrometheusRule", "gpupack") not in off.objects


@pytest.mark.parametrize("part", ["operator", "agent"])
def test_a_metrics_port_adds_a_certificate_and_the_right_to_authenticate_callers(part, render):
    rendered = render("metricsPort=9100")
    container = rendered.container(*PODS[part], part)
    shown = environment(container)
    assert shown["GPUPACK_METRICS_PORT"] == "9100"
    folder = shown["GPUPACK_METRICS_TLS_CERT"].rpartition("/")[0]
    assert folder in {mount["mountPath"] for mount in container["volumeMounts"]}
    asked = {
        resource
        for rule in rendered.objects["ClusterRole", f"gpupack-{part}"]["rules"]
        for resource in rule.get("resources", ())
    }
    assert {"tokenreviews", "subjectaccessreviews"} <= asked
    quiet = render().objects["ClusterRole", f"gpupack-{part}"]["rules"]
    assert "tokenreviews" not in str(quiet)


def test_the_network_policy_admits_the_scrapers_of_the_values(render):
    on = ("networkPolicy.enabled=true", *ON)
    closed = render(*on).objects["NetworkPolicy", "gpupack-no-ingress"]["spec"]
    assert "ingress" not in closed
    peer = {"podSelector": {"matchLabels": {"app": "prometheus"}}}
    named = f"networkPolicy.metricsFrom=[{json.dumps(peer)}]"
    (opened,) = render(*on, named).objects["NetworkPolicy", "gpupack-no-ingress"]["spec"]["ingress"]
    assert opened == {"ports": [{"port": "metrics", "protocol": "TCP"}], "from": [peer]}


@pytest.mark.parametrize("more", [(), ("cost.enabled=true",)])
def test_readings_let_only_api_and_cost_service_get_the_agents_metrics(render, more):
    on = ("api.enabled=true", "api.readings.enabled=true", "networkPolicy.enabled=true")
    rendered = render(*on, *more)
    volumes = pod(rendered, "api")["spec"]["volumes"]
    (readings,) = (each for each in volumes if each["name"] == "readings")
    secrets = {each["secret"]["name"] for each in readings["projected"]["sources"]}
    assert secrets == {"gpupack-metrics-certificate", "gpupack-metrics-token"}
    assert all(("Secret", name) in rendered.objects for name in secrets)
    items = [each["secret"]["items"] for each in readings["projected"]["sources"]]
    keys = {item["key"] for of_one in items for item in of_one}
    assert keys == {"ca.crt", "token"}
    port = environment(rendered.container(*PODS["agent"], "agent"))["GPUPACK_METRICS_PORT"]
    asked = environment(rendered.container(*PODS["api"], "api"))
    assert asked["GPUPACK_READINGS_PORT"] == port == "9443"
    (rule,) = rendered.objects["NetworkPolicy", "gpupack-no-ingress"]["spec"]["ingress"]
    selectors = [each["podSelector"]["matchLabels"] for each in rule["from"]]
    admitted = [each["app.kubernetes.io/component"] for each in selectors]
    assert admitted == ["api", "cost"][: len(admitted)]
    assert len(admitted) == 1 + len(more)
    if more:
        deployment = rendered.objects["Deployment", "gpupack-cost"]["spec"]["template"]["spec"]
        cost_env = environment(deployment["containers"][0])
        assert cost_env.pop("GPUPACK_READINGS_SECONDS") == "30"
        assert {name for name in asked if "READINGS" in name} == {
            name for name in cost_env if "READINGS" in name
        }
        assert readings in deployment["volumes"]
