// kfake: franz-go's in-memory broker, as a process that listens on one port. `scripts/kfake-start` builds and runs it.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: kfake PORT")
		os.Exit(2)
	}
	port, err := strconv.Atoi(os.Args[1])
	if err == nil {
		var cluster *kfake.Cluster
		cluster, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(port), kfake.AllowAutoTopicCreation())
		if err == nil {
			defer cluster.Close()
			stop := make(chan os.Signal, 1)
			signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
			<-stop
			return
		}
	}
	fmt.Fprintln(os.Stderr, "kfake:", err)
	os.Exit(1)
}
