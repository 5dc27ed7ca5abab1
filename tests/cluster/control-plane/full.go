//go:build full

// The parts that make pods of objects, which take most of the time of a build.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func init() {
	parts["controllers"] = func() { os.Exit(cli.Run(controllers.NewControllerManagerCommand())) }
	parts["scheduler"] = func() { os.Exit(cli.Run(scheduler.NewSchedulerCommand())) }
}
