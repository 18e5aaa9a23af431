package kit

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Takes holds a command to the arguments that its use line names, as in "steer TASK TEXT..." or
// "show [TASK]", and says by name which one is missing. Flags in the line are passed over, with
// all that follows.
func Takes(cmd *cobra.Command, args []string) error {
	var missing []string
	most, open := 0, false
	for _, word := range strings.Fields(cmd.Use)[1:] {
		if strings.HasPrefix(strings.TrimPrefix(word, "["), "-") {
			break
		}
		most++
		name, repeats := strings.CutSuffix(word, "...")
		open = open || repeats
		if most > len(args) && !strings.HasPrefix(name, "[") {
			missing = append(missing, name)
		}
	}
	switch {
	case len(missing) == 1:
		return fmt.Errorf("%s is missing", missing[0])
	case len(missing) > 1:
		return fmt.Errorf("%s are missing", strings.Join(missing, " and "))
	case len(args) > most && !open:
		return fmt.Errorf("%q is one argument too many", args[most])
	}
	return nil
}
