package taskview

import (
	"fmt"

	"github.com/daybreak-agent/daybreak/internal/story"
)

// Count shows a number with thousands separated.
func Count(n int64) string { return story.Count(n) }

// Size shows a number of bytes with a unit of 1000: "82 kB", "1.4 MB".
func Size(n int64) string {
	f, unit := float64(n), "B"
	for _, next := range []string{"kB", "MB", "GB", "TB"} {
		if f < 999.5 {
			break
		}
		f, unit = f/1000, next
	}
	if unit == "B" || f >= 9.95 {
		return fmt.Sprintf("%.0f %s", f, unit)
	}
	return fmt.Sprintf("%.1f %s", f, unit)
}
