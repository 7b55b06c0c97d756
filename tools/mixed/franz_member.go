// A group member with franz-go: reports what it owns, reads and commits as lines of JSON, like the other members.
// Usage: franz_member BOOTSTRAP TOPIC GROUP. SIGTERM makes it leave the group.
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

var output sync.Mutex

func report(name string, with fields) {
	output.Lock()
	defer output.Unlock()
	with["name"], with["timestamp"] = name, time.Now().UnixMilli()
	line, err := json.Marshal(with)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}

func reportPartitions(name string) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, moved map[string][]int32) {
		reported := []fields{}
		for _, partitions := range moved {
			for _, partition := range partitions {
				reported = append(reported, fields{"partition": partition})
			}
		}
		report(name, fields{"partitions": reported})
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
		kgo.OnPartitionsAssigned(reportPartitions("partitions_assigned")),
		kgo.OnPartitionsRevoked(reportPartitions("partitions_revoked")),
		kgo.OnPartitionsLost(reportPartitions("partitions_lost")),
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
	report("shutdown_complete", fields{})
}

// take reports what was read, commits it, and reports the result. No partition can be revoked meanwhile.
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
	report("records_consumed", fields{"partitions": ranges})
	within, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := client.CommitRecords(within, fetches.Records()...)
	report("offsets_committed", fields{"offsets": offsets, "success": err == nil, "error": fmt.Sprint(err)})
}
