package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/rogpeppe/go-internal/txtar"
)

// TestKillInSetup kills the process while dependencies are prepared, and when they just are: the
// next run begins the setup again or takes it as it is, and nothing of the first is left.
func TestKillInSetup(t *testing.T) {
	need(t, "python3")
	files, err := txtar.ParseFile("testdata/kill.txtar")
	if err != nil {
		t.Fatal(err)
	}
	files.Files = append(files.Files, txtar.File{Name: "shop/.daybreak.yaml", Data: []byte(
		"setup:\n  - mkdir -p made/deep && echo one > ~/one\n  - test ! -e made/two && touch made/two && echo gone > price.py && sleep 1\n")})
	for _, c := range []struct {
		point killPoint
		steps int // that the second run begins
	}{
		{killPoint{name: "the second step", match: with("setup.started", "n", 2)}, 2},
		{killPoint{name: "the end of setup", match: kind("setup.ready")}, 0},
	} {
		t.Run(strings.ReplaceAll(c.point.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			in := install(t, files)
			target := fingerprint(filepath.Join(in.dir, "shop"))
			_, killed := in.run(t, c.point.match)
			if !killed {
				t.Fatalf("the first run never came to %s", c.point.name)
			}
			in.model.letGo()
			second, _ := in.run(t, nil)
			begun := 0
			for _, l := range second {
				if l.Kind == "setup.started" {
					begun++
				}
			}
			if begun != c.steps {
				t.Errorf("%d steps in the second run, want %d", begun, c.steps)
			}
			o := outcome{name: c.point.name}
			in.judge(t, &o, target)
			kept, err := os.ReadDir(filepath.Join(in.data(), "layers"))
			if err != nil || len(kept) != 1 || strings.HasPrefix(kept[0].Name(), ".") {
				t.Fatalf("layers: %v %v", kept, err)
			}
			if _, err := os.Lstat(filepath.Join(in.data(), "layers", kept[0].Name(), "work/price.py")); !os.IsNotExist(err) {
				t.Errorf("the layer changes what the base tracks: %v", err)
			}
		})
	}
}

// TestRealSetup prepares dependencies from the registries that this machine's own clients use. It
// needs DAYBREAK_REAL_REGISTRIES=1.
func TestRealSetup(t *testing.T) {
	if os.Getenv("DAYBREAK_REAL_REGISTRIES") != "1" {
		t.Skip("DAYBREAK_REAL_REGISTRIES is not 1")
	}
	need(t, "go", "npm", "node")
	testscript.Run(t, testscript.Params{
		Dir: "testdata/real",
		Setup: func(env *testscript.Env) error {
			env.Vars = append(env.Vars, "REAL_HOME="+os.Getenv("HOME"))
			return setup(env)
		},
		Cmds: commands(), RequireExplicitExec: true, RequireUniqueNames: true,
	})
}
