// SPDX-License-Identifier: Apache-2.0

// Command kube is a whole Kubernetes cluster in one binary: the name it is called by (a symbolic link, or the first
// argument of `kube`) says which component it is. One binary shares the 100 MB of code that the components have in
// common, and one go.mod says that they fit together.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"gpupack.dev/devcluster/command"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubeapiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	kubeproxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	kubescheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// components maps a name to what runs it. Each value starts its component and returns the exit status.
var components = map[string]func() int{
	"etcd":                    runEtcd,
	"coredns":                 runCoreDNS,
	"kube-apiserver":          func() int { return cli.Run(kubeapiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() int { return cli.Run(controllermanager.NewControllerManagerCommand()) },
	"kube-scheduler":          func() int { return cli.Run(kubescheduler.NewSchedulerCommand()) },
	"kube-proxy":              func() int { return cli.Run(kubeproxy.NewProxyCommand()) },
	"kubelet":                 func() int { return cli.Run(kubelet.NewKubeletCommand(context.Background())) },
	"kubectl":                 command.Kubectl,
}

func main() {
	name := filepath.Base(os.Args[0])
	if name == "kube" && len(os.Args) > 1 {
		name = os.Args[1]
		os.Args = os.Args[1:]
	}
	run, known := components[name]
	if !known {
		fmt.Fprintf(os.Stderr, "kube: unknown component %q\n", name)
		os.Exit(2)
	}
	os.Exit(run())
}

func runEtcd() int {
	etcdmain.Main(os.Args)
	return 0
}

// runCoreDNS knows only the plugins that are linked in; the names' order is the order in which they answer.
func runCoreDNS() int {
	dnsserver.Directives = []string{"bind", "errors", "kubernetes", "forward"}
	coremain.Run()
	return 0
}
