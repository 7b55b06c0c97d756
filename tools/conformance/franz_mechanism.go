// Produces and consumes one record with franz-go over TLS, authenticated by SASL or by a certificate.
// Usage: franz_mechanism BOOTSTRAP TOPIC CA MECHANISM USER SECRET
// The secret is a password, or a token for OAUTHBEARER; for SSL, user and secret are the files of certificate and key.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	bootstrap, topic, ca := os.Args[1], os.Args[2], os.Args[3]
	mechanism, user, secret := os.Args[4], os.Args[5], os.Args[6]
	pem, err := os.ReadFile(ca)
	check(err)
	secure := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	secure.RootCAs.AppendCertsFromPEM(pem)
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap),
		kgo.DialTLSConfig(secure),
		kgo.DefaultProduceTopic(topic),
		kgo.AllowAutoTopicCreation(),
		kgo.ConsumeTopics(topic),
		kgo.ConsumerGroup(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	switch mechanism {
	case "PLAIN":
		options = append(options, kgo.SASL(plain.Auth{User: user, Pass: secret}.AsMechanism()))
	case "SCRAM-SHA-256":
		options = append(options, kgo.SASL(scram.Auth{User: user, Pass: secret}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		options = append(options, kgo.SASL(scram.Auth{User: user, Pass: secret}.AsSha512Mechanism()))
	case "OAUTHBEARER":
		options = append(options, kgo.SASL(oauth.Auth{Token: secret}.AsMechanism()))
	case "SSL":
		pair, err := tls.LoadX509KeyPair(user, secret)
		check(err)
		secure.Certificates = []tls.Certificate{pair}
	}
	client, err := kgo.NewClient(options...)
	check(err)
	defer client.Close()
	limited, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	check(client.Ping(limited))
	check(client.ProduceSync(limited, kgo.StringRecord("value")).FirstErr())
	fetched := client.PollFetches(limited)
	check(fetched.Err())
	fetched.EachRecord(func(record *kgo.Record) { fmt.Println(string(record.Value)) })
}
