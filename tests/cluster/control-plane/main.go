// One binary of the parts of a Kubernetes that the tests need, each by the first argument.
package main

import (
	"fmt"
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
)

// What this binary can be.
var parts = map[string]func(){
	"etcd":      func() { etcdmain.Main(os.Args) },
	"apiserver": func() { os.Exit(cli.Run(apiserver.NewAPIServerCommand())) },
	"node":      func() { runNode(os.Args[1:]) },
	"dns":       func() { runDNS(os.Args[1:]) },
}

func main() {
	if len(os.Args) > 1 {
		if part, known := parts[os.Args[1]]; known {
			os.Args = append(os.Args[:1], os.Args[2:]...)
			part()
			return
		}
	}
	fmt.Fprintln(os.Stderr, "usage: control-plane etcd | apiserver | node | dns, and with the tag `full` controllers | scheduler")
	os.Exit(2)
}
