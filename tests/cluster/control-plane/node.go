// A node without containers: each pod is one process of this machine in a network namespace of its own, with an address on a
// bridge that all nodes share. There is one image, which is one binary.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	lookEvery = 200 * time.Millisecond
	beatEvery = 10 * time.Second
	// What a scheduler may place here.
	cpu, memory, podCount = "8", "16Gi", "50"
)

type node struct {
	name, binary, dir string
	// The one image that it has.
	image string
	// Takes pods that no scheduler places, for a cluster without one.
	binds bool
	api   *kubernetes.Clientset
	net   *network

	mu   sync.Mutex
	pods map[types.UID]*pod
}

// runNode KUBECONFIG BINARY DIR IMAGE NAME NUMBER: the number sets its pods' addresses apart from those of other nodes.
func runNode(args []string) {
	config, err := clientcmd.BuildConfigFromFlags("", args[0])
	must(err)
	config.QPS, config.Burst = 100, 200
	n := &node{binary: args[1], dir: args[2], image: args[3], name: args[4], binds: os.Getenv("BIND") != "",
		api: kubernetes.NewForConfigOrDie(config), net: newNetwork(args[4], args[5]), pods: map[types.UID]*pod{}}
	ctx := context.Background()
	n.join(ctx)
	go n.beat(ctx)
	for ; ; time.Sleep(lookEvery) {
		if n.binds {
			n.bind(ctx)
		}
		list, err := n.api.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + n.name})
		if err != nil {
			fmt.Println("list pods:", err)
			continue
		}
		n.look(ctx, list.Items)
	}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (n *node) join(ctx context.Context) {
	labels := map[string]string{"kubernetes.io/hostname": n.name, "kubernetes.io/os": "linux", "topology.kubernetes.io/zone": "zone-" + n.name}
	object := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name, Labels: labels}}
	if _, err := n.api.CoreV1().Nodes().Create(ctx, object, metav1.CreateOptions{}); err != nil {
		fmt.Println("join:", err)
	}
}

// beat keeps the node ready.
func (n *node) beat(ctx context.Context) {
	room := v1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory), "pods": resource.MustParse(podCount)}
	for ; ; time.Sleep(beatEvery) {
		object, err := n.api.CoreV1().Nodes().Get(ctx, n.name, metav1.GetOptions{})
		if err != nil {
			fmt.Println("beat:", err)
			continue
		}
		now := metav1.Now()
		object.Status.Capacity, object.Status.Allocatable = room, room
		object.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: now, LastTransitionTime: now}}
		if _, err = n.api.CoreV1().Nodes().UpdateStatus(ctx, object, metav1.UpdateOptions{}); err != nil {
			fmt.Println("beat:", err)
		}
	}
}

func (n *node) bind(ctx context.Context) {
	list, err := n.api.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName="})
	if err != nil {
		return
	}
	for _, p := range list.Items {
		binding := &v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace}, Target: v1.ObjectReference{Kind: "Node", Name: n.name}}
		if err := n.api.CoreV1().Pods(p.Namespace).Bind(ctx, binding, metav1.CreateOptions{}); err != nil {
			fmt.Println(p.Name, "bind:", err)
		}
	}
}

// look starts what is new, ends what is deleted, and reports what changed.
func (n *node) look(ctx context.Context, found []v1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range found {
		object := &found[i]
		known := n.pods[object.UID]
		if known == nil && object.DeletionTimestamp == nil && object.Status.Phase != v1.PodSucceeded && object.Status.Phase != v1.PodFailed {
			known = &pod{node: n, object: object.DeepCopy()}
			n.pods[object.UID] = known
			go known.run(ctx)
		}
		switch {
		case object.DeletionTimestamp != nil && known == nil:
			n.remove(ctx, object)
		case object.DeletionTimestamp != nil:
			known.end(ctx, object)
		case known != nil:
			n.report(ctx, object, known)
		}
	}
}

// remove says that a deleted pod has no process any more.
func (n *node) remove(ctx context.Context, object *v1.Pod) {
	now := int64(0)
	options := metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: metav1.NewUIDPreconditions(string(object.UID))}
	if err := n.api.CoreV1().Pods(object.Namespace).Delete(ctx, object.Name, options); err != nil {
		fmt.Println(object.Name, "remove:", err)
	}
}

func (n *node) report(ctx context.Context, object *v1.Pod, known *pod) {
	status, changed := known.status(object.Status)
	if !changed {
		return
	}
	patch, err := json.Marshal(map[string]any{"status": status})
	must(err)
	if _, err = n.api.CoreV1().Pods(object.Namespace).Patch(ctx, object.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		fmt.Println(object.Name, "report:", err)
	}
}
