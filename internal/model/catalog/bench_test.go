package catalog_test

import (
	"testing"

	"github.com/daybreak-agent/daybreak/internal/model/catalog"
)

// BenchmarkNew is what the first model client of a process pays.
func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		catalog.New()
	}
}
