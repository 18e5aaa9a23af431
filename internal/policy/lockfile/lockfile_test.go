package lockfile

import (
	"fmt"
	"strings"
	"testing"
)

const h1, h2 = "h1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", "h1:BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB="

const npmBase = `{"name":"app","lockfileVersion":3,"packages":{"":{"name":"app"},
"node_modules/a":{"version":"1.0.0","resolved":"https://reg.test/a/-/a-1.0.0.tgz","integrity":"sha512-aaa"},
"node_modules/@s/b":{"version":"2.0.0","resolved":"https://reg.test/@s/b/-/b-2.0.0.tgz","integrity":"sha512-bbb"}}}`

const npmOld = `{"lockfileVersion":1,"dependencies":{"a":{"version":"1.0.0","resolved":"https://reg.test/a/-/a-1.0.0.tgz","integrity":"sha512-aaa","dependencies":{"b":{"version":"2.0.0","resolved":"https://reg.test/b/-/b-2.0.0.tgz","integrity":"sha512-bbb"}}}}}`

const yarn1 = "# yarn lockfile v1\n\n\na@^1.0.0:\n  version \"1.0.0\"\n  resolved \"https://reg.test/a/-/a-1.0.0.tgz#abc\"\n  integrity sha512-aaa\n  dependencies:\n    b \"^2.0.0\"\n\n\"@s/b@^2.0.0\", \"@s/b@^2.1.0\":\n  version \"2.1.0\"\n  resolved \"https://reg.test/@s/b/-/b-2.1.0.tgz#def\"\n  integrity sha512-bbb\n"

const yarn2 = "__metadata:\n  version: 8\n  cacheKey: 10c0\n\n\"a@npm:^1.0.0\":\n  version: 1.0.0\n  resolution: \"a@npm:1.0.0\"\n  dependencies:\n    b: \"npm:^2.0.0\"\n  checksum: 10c0/aaa\n  languageName: node\n  linkType: hard\n"

const pnpm = "lockfileVersion: '9.0'\n\npackages:\n\n  a@1.0.0:\n    resolution: {integrity: sha512-aaa}\n    engines: {node: '>=10'}\n\n  b@2.0.0:\n    resolution: {integrity: sha512-bbb}\n"

const cargo = "version = 3\n\n[[package]]\nname = \"app\"\nversion = \"0.1.0\"\ndependencies = [\"a\"]\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nsource = \"registry+https://idx.test/index\"\nchecksum = \"aaa\"\n"

const poetry = "[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nfiles = [\n    {file = \"a-1.0.0.whl\", hash = \"sha256:aaa\"},\n]\n\n[metadata]\nlock-version = \"2.0\"\n"

const uv = "version = 1\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nsource = { registry = \"https://idx.test/simple\" }\nsdist = { url = \"https://files.test/a-1.0.0.tar.gz\", hash = \"sha256:aaa\", size = 1 }\nwheels = [\n    { url = \"https://files.test/a-1.0.0.whl\", hash = \"sha256:bbb\" },\n]\n\n[[package]]\nname = \"app\"\nversion = \"0.1.0\"\nsource = { editable = \".\" }\n"

const reqs = "# pinned\na==1.0.0 \\\n    --hash=sha256:aaa \\\n    --hash=sha256:bbb\nb[x]==2.0 ; python_version >= '3.8' --hash=sha256:ccc\n"

const gems = "GEM\n  remote: https://gems.test/\n  specs:\n    a (1.0.0)\n      b (~> 2)\n    b (2.0.0)\n\nPLATFORMS\n  ruby\n\nDEPENDENCIES\n  a\n\nCHECKSUMS\n  a (1.0.0) sha256=aaa\n  b (2.0.0) sha256=bbb\n\nBUNDLED WITH\n   2.5.0\n"

func TestLockfiles_EXP16(t *testing.T) {
	gosum := "ex.test/a v1.0.0 " + h1 + "\nex.test/a v1.0.0/go.mod " + h2 + "\n"
	gomod := "module m\n\ngo 1.24\n\nrequire ex.test/a v1.0.0\n"
	for _, c := range []struct {
		path, old, from, to string // the new file is old with from replaced by to
		want                string // "package: what" of each change; "" none
	}{
		{"go.sum", gosum, h1, h2, "ex.test/a v1.0.0: has another checksum for the same version"},
		{"go.sum", gosum, "", "", ""},
		{"go.sum", gosum, "go.mod " + h2, "go.mod " + h2 + "\nex.test/b v1.0.0 " + h1, ""},
		{"go.sum", gosum, h1, h1 + "\nex.test/a v1.0.0 " + h2, "ex.test/a v1.0.0: has two checksums; ex.test/a v1.0.0: has another checksum for the same version"},
		{"go.sum", gosum, h1, "", "go.sum: cannot be read"},
		{"go.mod", gomod, "require", "replace ex.test/a => ../a\n\nrequire", "ex.test/a: comes from a path"},
		{"sub/go.mod", gomod, "require", "replace ex.test/a => evil.test/a v1.0.0\n\nrequire", "ex.test/a: comes from a plain address"},
		{"go.mod", gomod, "v1.0.0", "v1.1.0", ""},

		{"package-lock.json", npmBase, "1.0.0", "1.0.1", ""},
		{"package-lock.json", npmBase, "reg.test/a/-", "evil.test/a/-", "a 1.0.0: comes from another registry"},
		{"package-lock.json", npmBase, "https://reg.test/a/-", "http://reg.test/a/-", "a 1.0.0: comes over a connection without encryption"},
		{"package-lock.json", npmBase, `,"integrity":"sha512-aaa"`, "", "a 1.0.0: lost its checksum"},
		{"package-lock.json", npmBase, "sha512-aaa", "sha512-zzz", "a 1.0.0: has another checksum"},
		{"package-lock.json", npmBase, "https://reg.test/a/-/a-1.0.0.tgz", "git+ssh://git@evil.test/a.git#123", "a 1.0.0: comes from a git repository"},
		{"package-lock.json", npmBase, "https://reg.test/a/-/a-1.0.0.tgz", "file:../a.tgz", "a 1.0.0: comes from a path"},
		{"package-lock.json", npmBase, "https://reg.test/a/-/a-1.0.0.tgz", "https://evil.test/a.tgz", "a 1.0.0: comes from a plain address"},
		{"package-lock.json", npmBase, "reg.test/a/-/a-1", "reg.test/evil/-/evil-1", "a 1.0.0: is taken from the address of another package"},
		{"package-lock.json", npmBase, `"node_modules/a":{`, `"node_modules/a":{"link":true,`, "a: comes from a path"},
		{"package-lock.json", npmBase, `{"version":"1.0.0"`, `{"name":"real","version":"1.0.0"`, "a 1.0.0: is taken from the address of another package"},
		{"package-lock.json", npmBase, `"integrity":"sha512-aaa"`, `"integrity":"sha512-aaa","integrity":"x"`, "package-lock.json: cannot be read"},
		{"package-lock.json", npmBase, `"lockfileVersion":3`, `"lockfileVersion":3]`, "package-lock.json: cannot be read"},
		{"npm-shrinkwrap.json", npmOld, "reg.test/b", "evil.test/b", "b 2.0.0: comes from another registry"},
		{"package-lock.json", npmOld, `"version":"2.0.0","resolved":"https://reg.test/b/-/b-2.0.0.tgz","integrity":"sha512-bbb"`, `"version":"git+https://evil.test/b.git#1"`, "b git+https://evil.test/b.git#1: comes from a git repository; b git+https://evil.test/b.git#1: lost its checksum"},

		{"yarn.lock", yarn1, "1.0.0.tgz#abc", "1.0.2.tgz#abd", ""},
		{"yarn.lock", yarn1, "reg.test/@s", "evil.test/@s", "@s/b 2.1.0: comes from another registry"},
		{"yarn.lock", yarn1, "https://reg.test/a/-/a-1.0.0.tgz#abc", "git+https://evil.test/a#1", "a 1.0.0: comes from a git repository"},
		{"yarn.lock", yarn1, "  integrity sha512-bbb\n", "", "@s/b 2.1.0: has another checksum for the same version"},
		{"yarn.lock", strings.ReplaceAll(yarn1, "#def", ""), "  integrity sha512-bbb\n", "", "@s/b 2.1.0: lost its checksum"},
		{"yarn.lock", yarn1, "  integrity sha512-aaa\n", "  integrity sha512-aaa\n  resolved \"https://evil.test/x\"\n", "yarn.lock: cannot be read"},
		{"yarn.lock", yarn1, "# yarn", "\tyarn", "yarn.lock: cannot be read"},
		{"yarn.lock", yarn2, "a@npm:1.0.0", "a@https://evil.test/a.tgz", "a 1.0.0: comes from a plain address"},
		{"yarn.lock", yarn2, "10c0/aaa", "10c0/bbb", "a 1.0.0: has another checksum"},
		{"yarn.lock", yarn2, "  checksum: 10c0/aaa\n", "", "a 1.0.0: lost its checksum"},

		{"pnpm-lock.yaml", pnpm, "{integrity: sha512-aaa}", "{integrity: sha512-ccc}", "a@1.0.0: has another checksum"},
		{"pnpm-lock.yaml", pnpm, "{integrity: sha512-aaa}", "{tarball: https://evil.test/a.tgz}", "a@1.0.0: comes from a plain address; a@1.0.0: lost its checksum"},
		{"pnpm-lock.yaml", pnpm, "{integrity: sha512-aaa}", "{type: git, repo: https://evil.test/a, commit: '1'}", "a@1.0.0: comes from a git repository; a@1.0.0: lost its checksum"},
		{"pnpm-lock.yaml", pnpm, "{integrity: sha512-aaa}", "&x {integrity: sha512-aaa}", "pnpm-lock.yaml: cannot be read"},
		{"pnpm-lock.yaml", pnpm, "b@2.0.0", "b@2.0.1", ""},

		{"Cargo.lock", cargo, "idx.test", "evil.test", "a 1.0.0: comes from another registry"},
		{"Cargo.lock", cargo, "registry+https://idx.test/index", "git+https://evil.test/a#1", "a 1.0.0: comes from a git repository"},
		{"Cargo.lock", cargo, "checksum = \"aaa\"\n", "", "a 1.0.0: lost its checksum"},
		{"Cargo.lock", cargo, "\"aaa\"", "\"bbb\"", "a 1.0.0: has another checksum"},
		{"Cargo.lock", cargo, "source = \"registry+https://idx.test/index\"\nchecksum = \"aaa\"\n", "", "a 1.0.0: comes from a path"},
		{"Cargo.lock", cargo, "1.0.0\"\nsource", "1.0.1\"\nsource", ""},
		{"Cargo.lock", cargo, "[[package]]", "[[package", "Cargo.lock: cannot be read"},

		{"poetry.lock", poetry, "sha256:aaa", "sha256:bbb", "a 1.0.0: has another checksum"},
		{"poetry.lock", poetry, "    {file = \"a-1.0.0.whl\", hash = \"sha256:aaa\"},\n", "", "a 1.0.0: lost its checksum"},
		{"poetry.lock", poetry, "\n[metadata]", "\n[package.source]\ntype = \"git\"\nurl = \"https://evil.test/a\"\nresolved_reference = \"1\"\n\n[metadata]", "a 1.0.0: comes from a git repository"},
		{"poetry.lock", poetry, "\n[metadata]", "\n[package.source]\ntype = \"legacy\"\nurl = \"https://evil.test/simple\"\nreference = \"evil\"\n\n[metadata]", "a 1.0.0: comes from another registry"},

		{"uv.lock", uv, "https://files.test/a-1.0.0.whl", "https://evil.test/a-1.0.0.whl", "a 1.0.0: has files at several hosts; a 1.0.0: comes from another registry"},
		{"uv.lock", uv, "idx.test", "evil.test", "a 1.0.0: comes from another registry"},
		{"uv.lock", uv, "{ registry = \"https://idx.test/simple\" }", "{ git = \"https://evil.test/a?rev=1\" }", "a 1.0.0: comes from a git repository"},
		{"uv.lock", uv, ", hash = \"sha256:bbb\"", "", "a 1.0.0: has a file without a checksum; a 1.0.0: has another checksum"},

		{"requirements.txt", reqs, "# pinned", "--extra-index-url https://evil.test/simple", "--extra-index-url: decides where packages come from"},
		{"requirements.txt", reqs, "# pinned", "--index-url=https://evil.test/simple", "--index-url: decides where packages come from"},
		{"dev-requirements.txt", reqs, "# pinned", "c @ git+https://evil.test/c", "c: comes from a git repository"},
		{"requirements/base.txt", reqs, "# pinned", "git+https://evil.test/c", "git+https://evil.test/c: comes from a git repository"},
		{"requirements.txt", reqs, "# pinned", "./local.whl", "./local.whl: comes from a path"},
		{"requirements.txt", reqs, "# pinned", "c==1.0", "c ==1.0: has no checksum"},
		{"requirements.txt", reqs, "sha256:bbb", "sha256:ddd", "a ==1.0.0: has another checksum"},
		{"requirements.txt", reqs, "# pinned", "-r more.txt", ""},
		{"requirements.txt", reqs, "# pinned", "a b c", "requirements.txt: cannot be read"},
		{"requirements.txt", "a\nb>=1,<2\n", "a\n", "a\nc~=1.0\n", ""},

		{"Gemfile.lock", gems, "gems.test", "evil.test", "a 1.0.0: comes from another registry"},
		{"Gemfile.lock", gems, "GEM\n", "GIT\n  remote: https://evil.test/c\n  revision: 1\n  specs:\n    c (1.0)\n\nGEM\n", "c 1.0: comes from a git repository"},
		{"Gemfile.lock", gems, "sha256=aaa", "sha256=zzz", "a 1.0.0: has another checksum"},
		{"Gemfile.lock", gems, " sha256=aaa", "", "a 1.0.0: lost its checksum"},
	} {
		t.Run(c.path+"/"+c.from, func(t *testing.T) {
			next := strings.Replace(c.old, c.from, c.to, 1)
			if c.from != "" && next == c.old {
				t.Fatal("the test changes nothing")
			}
			changes, n := Compare(c.path, []byte(c.old), []byte(next))
			if (n == 0) != (c.from == "" || strings.HasPrefix(c.to, "-r")) {
				t.Errorf("%d packages differ", n)
			}
			var got []string
			for _, ch := range changes {
				got = append(got, ch.Package+": "+ch.What)
			}
			want := strings.Split(c.want, "; ")
			if c.want == "" {
				want = nil
			}
			if len(got) != len(want) {
				t.Fatalf("got %q, want %q", got, want)
			}
			for i := range want {
				if !strings.HasPrefix(got[i], want[i]) {
					t.Errorf("got %q, want %q", got[i], want[i])
				}
			}
		})
	}
}

func TestOldAndNewAreShown_EXP16(t *testing.T) {
	changes, _ := Compare("package-lock.json", []byte(npmBase), []byte(strings.Replace(npmBase, "reg.test/a/-", "evil.test/a/-", 1)))
	if len(changes) != 1 || changes[0].Old != "https://reg.test/a/-/a-1.0.0.tgz" || changes[0].New != "https://evil.test/a/-/a-1.0.0.tgz" {
		t.Errorf("%+v", changes)
	}
}

func TestNewAndDeletedLockfiles_EXP16(t *testing.T) {
	for p, text := range map[string]string{"package-lock.json": npmBase, "yarn.lock": yarn1, "Cargo.lock": cargo, "uv.lock": uv, "Gemfile.lock": gems} {
		if changes, _ := Compare(p, []byte(text), nil); len(changes) != 1 || !strings.Contains(changes[0].What, "deleted") {
			t.Errorf("%s deleted: %+v", p, changes)
		}
		changes, n := Compare(p, nil, []byte(text))
		if n == 0 || len(changes) == 0 || !strings.Contains(fmt.Sprint(changes), "nothing here came from so far") {
			t.Errorf("%s added: %+v", p, changes)
		}
	}
	// An unreadable old one makes everything new.
	if changes, _ := Compare("Cargo.lock", []byte("<<<<"), []byte(cargo)); len(changes) == 0 {
		t.Error("a broken base hides the registry")
	}
	for _, p := range []string{"main.go", "lock", "notes.txt", "cargo.lock.md"} {
		if Is(p) {
			t.Errorf("%s is taken for a lockfile", p)
		}
	}
}

func FuzzCompare(f *testing.F) {
	names := []string{"go.sum", "go.mod", "package-lock.json", "yarn.lock", "pnpm-lock.yaml", "Cargo.lock", "poetry.lock", "uv.lock", "requirements.txt", "Gemfile.lock"}
	for i, s := range []string{"a v1 " + h1, "module m", npmBase, yarn1, pnpm, cargo, poetry, uv, reqs, gems, npmOld, yarn2} {
		f.Add(i%len(names), []byte(s), []byte(npmOld))
	}
	f.Fuzz(func(t *testing.T, i int, old, new []byte) {
		p := names[uint(i)%uint(len(names))]
		Compare(p, old, new)
		if changes, n := Compare(p, new, new); n != 0 && !strings.Contains(fmt.Sprint(changes), "cannot be read") {
			if fm, _ := formatOf(p); func() bool { _, err := fm.parse(new); return err == nil }() {
				t.Fatalf("a file differs from itself: %+v", changes)
			}
		}
	})
}
