// A group member made of franz-go: tells what it owns, reads and commits as lines of JSON, like the other members.
// Usage: franz_member BOOTSTRAP TOPIC GROUP. SIGTERM makes it leave the group as a decent member does.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type fields map[string]any

var telling sync.Mutex

func tell(name string, with fields) {
	telling.Lock()
	defer telling.Unlock()
	with["name"], with["timestamp"] = name, time.Now().UnixMilli()
	line, err := json.Marshal(with)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}

func tellPartitions(name string) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, moved map[string][]int32) {
		places := []fields{}
		for _, partitions := range moved {
			for _, partition := range partitions {
				places = append(places, fields{"partition": partition})
			}
		}
		tell(name, fields{"partitions": places})
	}
}

func main() {
	topic := os.Args[2]
	client, err := kgo.NewClient(
		kgo.SeedBrokers(os.Args[1]),
		kgo.ConsumeTopics(topic),
		kgo.ConsumerGroup(os.Args[3]),
		kgo.ServerSideBalancer(),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.OnPartitionsAssigned(tellPartitions("partitions_assigned")),
		kgo.OnPartitionsRevoked(tellPartitions("partitions_revoked")),
		kgo.OnPartitionsLost(tellPartitions("partitions_lost")),
	)
	if err != nil {
		panic(err)
	}
	ending, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	for ending.Err() == nil {
		within, cancel := context.WithTimeout(ending, 200*time.Millisecond)
		fetches := client.PollRecords(within, 200)
		cancel()
		take(client, fetches)
		client.AllowRebalance()
	}
	client.Close()
	tell("shutdown_complete", fields{})
}

// take tells what was read, commits it, and tells how that went. No partition can be taken away meanwhile.
func take(client *kgo.Client, fetches kgo.Fetches) {
	ranges, offsets := []fields{}, []fields{}
	fetches.EachPartition(func(read kgo.FetchTopicPartition) {
		if count := len(read.Records); count > 0 {
			first, last := read.Records[0].Offset, read.Records[count-1].Offset
			ranges = append(ranges, fields{"partition": read.Partition, "minOffset": first, "maxOffset": last})
			offsets = append(offsets, fields{"partition": read.Partition, "offset": last + 1})
		}
	})
	if len(ranges) == 0 {
		return
	}
	tell("records_consumed", fields{"partitions": ranges})
	within, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := client.CommitRecords(within, fetches.Records()...)
	tell("offsets_committed", fields{"offsets": offsets, "success": err == nil, "error": fmt.Sprint(err)})
}
