// Names of Services, as pods look them up: the ready addresses of its EndpointSlices, as they are at that moment. A Service with an
// address of its own has those of its pods here, too, as nothing on this machine passes calls on to them.
package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	zone = ".svc.cluster.local."
	// That of the Corefile of kubeadm.
	secondsToLive = 30
)

// runDNS KUBECONFIG ADDRESS
func runDNS(args []string) {
	config, err := clientcmd.BuildConfigFromFlags("", args[0])
	must(err)
	config.QPS, config.Burst = 100, 200
	api := kubernetes.NewForConfigOrDie(config)
	socket, err := net.ListenPacket("udp", args[1])
	must(err)
	for {
		asked := make([]byte, 4096)
		length, from, err := socket.ReadFrom(asked)
		must(err)
		go func() {
			answer, err := resolve(api, asked[:length])
			if err == nil {
				_, err = socket.WriteTo(answer, from)
			}
			if err != nil {
				fmt.Println(err)
			}
		}()
	}
}

func resolve(api *kubernetes.Clientset, asked []byte) ([]byte, error) {
	var message dnsmessage.Message
	if err := message.Unpack(asked); err != nil || len(message.Questions) != 1 {
		return nil, fmt.Errorf("no question: %w", err)
	}
	question := message.Questions[0]
	response := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: message.ID, Response: true, Authoritative: true, RecursionDesired: message.RecursionDesired},
		Questions: message.Questions,
	}
	addresses, known, err := ready(api, strings.ToLower(question.Name.String()))
	switch {
	case err != nil:
		fmt.Println(question.Name, err)
		response.RCode = dnsmessage.RCodeServerFailure
	case !known:
		response.RCode = dnsmessage.RCodeNameError
	case question.Type == dnsmessage.TypeA:
		for _, address := range addresses {
			response.Answers = append(response.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: question.Name, Class: dnsmessage.ClassINET, TTL: secondsToLive},
				Body:   &dnsmessage.AResource{A: address.As4()},
			})
		}
	}
	return response.Pack()
}

// ready returns the addresses of a Service, and whether there is such a Service.
func ready(api *kubernetes.Clientset, name string) ([]netip.Addr, bool, error) {
	inZone, found := strings.CutSuffix(name, zone)
	service, namespace, two := strings.Cut(inZone, ".")
	if !found || !two || strings.Contains(namespace, ".") {
		return nil, false, nil
	}
	slices, err := api.DiscoveryV1().EndpointSlices(namespace).List(context.Background(),
		metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=" + service})
	if err != nil {
		return nil, false, err
	}
	var addresses []netip.Addr
	for _, slice := range slices.Items {
		for _, endpoint := range slice.Endpoints {
			if endpoint.Conditions.Ready != nil && !*endpoint.Conditions.Ready {
				continue
			}
			address, err := netip.ParseAddr(endpoint.Addresses[0])
			if err != nil {
				return nil, false, err
			}
			addresses = append(addresses, address)
		}
	}
	return addresses, len(slices.Items) > 0, nil
}
