// franz-go's pkg/sr: creates schemas, reads them in all ways, changes levels and modes, deletes.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/twmb/franz-go/pkg/sr"
)

const (
	first  = `{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}`
	second = `{"type":"record","name":"Order","fields":[{"name":"id","type":"long"},{"name":"note","type":"string","default":""}]}`
	broken = `{"type":"record","name":"Order","fields":[{"name":"price","type":"int"}]}`
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func expect(is bool, what string) {
	if !is {
		check(errors.New(what))
	}
}

func main() {
	ctx := context.Background()
	client, err := sr.NewClient(sr.URLs(os.Args[1]))
	check(err)
	types, err := client.SupportedTypes(ctx)
	check(err)
	expect(len(types) > 0, "types")
	one, err := client.CreateSchema(ctx, "franz", sr.Schema{Schema: first})
	check(err)
	two, err := client.CreateSchema(ctx, "franz", sr.Schema{Schema: second})
	check(err)
	expect(one.Version == 1 && two.Version == 2 && one.ID != two.ID, "versions")
	_, err = client.CreateSchema(ctx, "franz", sr.Schema{Schema: broken})
	var refused *sr.ResponseError
	expect(errors.As(err, &refused) && refused.ErrorCode == 409, "an incompatible schema")
	versions, err := client.SubjectVersions(ctx, "franz")
	check(err)
	expect(len(versions) == 2, "list of versions")
	byID, err := client.SchemaByID(ctx, one.ID)
	check(err)
	expect(byID.Schema == first, "schema by id")
	found, err := client.LookupSchema(ctx, "franz", sr.Schema{Schema: second})
	check(err)
	expect(found.Version == 2, "lookup")
	compatible, err := client.CheckCompatibility(ctx, "franz", -1, sr.Schema{Schema: broken})
	check(err)
	expect(!compatible.Is, "compatibility")
	set := client.SetCompatibility(ctx, sr.SetCompatibility{Level: sr.CompatFull}, "franz")
	check(set[0].Err)
	level := client.Compatibility(ctx, "franz")
	check(level[0].Err)
	expect(level[0].Level == sr.CompatFull, "level")
	mode := client.SetMode(ctx, sr.ModeReadOnly, "franz")
	check(mode[0].Err)
	check(client.ResetMode(ctx, "franz")[0].Err)
	uses, err := client.SchemaUsagesByID(ctx, two.ID)
	check(err)
	expect(len(uses) == 1, "usages")
	_, err = client.DeleteSubject(ctx, "franz", sr.SoftDelete)
	check(err)
	_, err = client.DeleteSubject(ctx, "franz", sr.HardDelete)
	check(err)
	fmt.Println("ok")
}
