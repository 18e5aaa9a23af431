package forge_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/forge"
)

// What can be asked of a forge is this and no more: nothing of it approves, merges, dismisses,
// marks as ready, or changes what protects a branch. A new method needs a look at that.
func TestNothingApprovesOrMerges_FRG05(t *testing.T) {
	for _, c := range []struct {
		seam reflect.Type
		may  []string
	}{
		{reflect.TypeFor[forge.Forge](), []string{"FindPullRequest", "Home", "Name", "OpenPullRequest", "Push"}},
		{reflect.TypeFor[forge.Host](), []string{
			"Acknowledge", "Acts", "Capabilities", "Changed", "Comment", "Comments", "Credential", "EditComment", "Issue", "Name", "Parse", "Permission",
			"PullRequest", "FindPullRequest", "Home", "OpenPullRequest", "Push", "Reply", "Repository", "ReviewComments", "SetStatus", "Standing", "Verify",
		}},
	} {
		for i := range c.seam.NumMethod() {
			if m := c.seam.Method(i).Name; !slices.Contains(c.may, m) {
				t.Errorf("%s has a method %s that is not known to be harmless", c.seam, m)
			}
		}
	}
	// Nor do the adapters call what a client library has for it.
	never := regexp.MustCompile(`\b(Merge(PullRequest|Request)?|Approve\w*|(Create|Submit|Dismiss)(Pull)?Review\w*|Accept(MergeRequest|MR)|\w*AutoMerge\w*|(Create|Edit|Update|Delete|Remove)\w*(Protection|Hook|Secret|Variable|Collaborator|DeployKey)\w*)\(`)
	if !never.MatchString("c.MergePullRequest(x)") || !never.MatchString("c.EditBranchProtection(x)") {
		t.Fatal("the search finds nothing, so the test shows nothing")
	}
	seen := 0
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go") || strings.Contains(filepath.Dir(p), "test") {
			return err
		}
		seen++
		b, err := os.ReadFile(p)
		if m := never.FindString(string(b)); m != "" {
			t.Errorf("%s calls %s", p, m)
		}
		return err
	})
	if err != nil || seen < 5 {
		t.Errorf("%d files seen, %v", seen, err)
	}
}
