// Addresses of pods: a network namespace each, on one bridge.
package main

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"sync"
)

const (
	bridge = "relight-pods"
	prefix = "10.244.77."
	// Addresses of one node; the bridge itself has the first of all.
	perNode = 60
)

type network struct {
	node  string
	mu    sync.Mutex
	next  int
	until int
}

func newNetwork(node, number string) *network {
	at, err := strconv.Atoi(number)
	must(err)
	first := 10 + at*perNode
	return &network{node: node, next: first, until: first + perNode}
}

// namespace makes one with an address; `end` takes it away.
func (n *network) namespace(name string) (address string, err error) {
	n.mu.Lock()
	number := n.next
	n.next++
	n.mu.Unlock()
	if number == n.until {
		return "", fmt.Errorf("%s has given all of its %d addresses", n.node, perNode)
	}
	address = prefix + strconv.Itoa(number)
	outside := "rl" + strconv.Itoa(number)
	for _, words := range []string{
		"netns add " + name,
		"link add " + outside + " type veth peer name eth0 netns " + name,
		"link set " + outside + " master " + bridge + " up",
		"-n " + name + " addr add " + address + "/24 dev eth0",
		"-n " + name + " link set eth0 up",
		"-n " + name + " link set lo up",
		"-n " + name + " route add default via " + prefix + "1",
	} {
		if err = ip(words); err != nil {
			return "", err
		}
	}
	return address, nil
}

func (n *network) end(name string) {
	if err := ip("netns del " + name); err != nil {
		fmt.Println(err)
	}
}

func ip(words string) error {
	if out, err := exec.Command("ip", strings.Fields(words)...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", words, err, out)
	}
	return nil
}
