package result

import (
	"regexp"
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// complaint is how a tool says what did not build: file, then message.
var complaints = map[string][]*regexp.Regexp{
	"maven": {
		regexp.MustCompile(`^\[ERROR\] (?:file://)?(\S+\.(?:java|kt|scala|groovy)):\[?\d+[,:]\d+\]? (.*)$`),
		regexp.MustCompile(`^\[ERROR\] (?:file://)?(\S+\.(?:java|kt|scala|groovy)):\d+: error: (.*)$`),
	},
	"gradle": {
		regexp.MustCompile(`^(\S+\.(?:java|groovy|scala)):\d+: error: (.*)$`),
		regexp.MustCompile(`^e: (?:file://)?(\S+\.kts?):(?: \()?\d+[:,] ?\d+\)?:? (.*)$`),
	},
	"ctest": {
		regexp.MustCompile(`^(\S+?):\d+:(?:\d+:)? (?:fatal )?error: (.*)$`),
		regexp.MustCompile(`^CMake Error at (\S+?):\d+ (.*)$`),
	},
	"trx": {
		regexp.MustCompile(`^\s*(\S+\.(?:cs|fs|vb|\w+proj))\(\d+,\d+\): error (.*?)(?: \[.*\])?$`),
	},
	"phpunit": {
		regexp.MustCompile(`^(?:PHP )?(?:Parse|Fatal) error: +(?P<msg>.*) in (?P<file>\S+\.php)(?::\d+| on line \d+)`),
	},
}

var (
	mavenGoal    = regexp.MustCompile(`^\[ERROR\] ((?:Failed to execute goal|Non-|Some problems|Could not|The build could not|Plugin ).*)$`)
	mavenCrash   = regexp.MustCompile(`^\[ERROR\] (?:The forked VM terminated|ExecutionException The forked VM|There was an error in the forked process|Error occurred in starting fork).*$`)
	mavenCrashed = regexp.MustCompile(`^\[ERROR\] ([\w.$]+)$`)
	gradleWrong  = regexp.MustCompile(`^> (.*)$`)
	gradleCrash  = regexp.MustCompile(`Process 'Gradle Test Executor \d+' finished with non-zero exit value|Could not complete execution for Gradle Test Executor`)
	ctestTimeout = regexp.MustCompile(`^\t *\d+ - (.+) \(Timeout\)$`)
	linkerError  = regexp.MustCompile(`(?:^|/)(?:ld|ld\.\w+|lld|collect2): .*|: undefined reference to `)
)

// Console adds to a report what only the command's own output says: files that did not build, a
// test process that died, a build tool that could not start, tests that ran out of time or need not
// have passed where the report does not tell. tool is "maven", "gradle", "ctest", "trx", "phpunit"
// or "pytest"; others add nothing.
// It believes nothing good.
func (r *Report) Console(tool, out string, o Options) {
	o = o.withDefaults()
	known := r.Problems
	r.Problems = nil
	defer func() { r.Problems = append(r.Problems, known...) }() // why something was not built, before that it was not
	wrong, crashed := false, false
	complaint := complaints[tool]
	for line := range strings.Lines(out) {
		l := plain(strings.TrimRight(line, "\r\n"))
		for _, re := range complaint {
			m := re.FindStringSubmatch(l)
			if m == nil {
				continue
			}
			file, msg := m[1], m[2]
			if i := re.SubexpIndex("file"); i > 0 {
				file, msg = m[i], m[re.SubexpIndex("msg")]
			}
			if file = clip(o.rel(file), 500); !slices.Contains(r.BuildFailed, file) {
				r.BuildFailed = append(r.BuildFailed, file)
				r.problem("%s: %s", file, msg)
			}
		}
		switch tool {
		case "maven":
			if mavenCrash.MatchString(l) {
				crashed = true
				r.died(l)
			} else if m := mavenCrashed.FindStringSubmatch(l); crashed && m != nil && strings.Contains(m[1], ".") {
				r.FailedSuites = appendNew(r.FailedSuites, m[1])
			} else if m := mavenGoal.FindStringSubmatch(l); m != nil && !strings.Contains(l, "There are test failures") && !strings.Contains(l, "Compilation failure") && !wrong {
				wrong = true
				r.problem("%s", m[1])
			}
		case "gradle":
			if gradleCrash.MatchString(l) {
				r.died(l)
			} else if strings.HasPrefix(l, "* What went wrong:") {
				wrong = true
			} else if m := gradleWrong.FindStringSubmatch(l); m != nil && wrong {
				wrong = false
				if !strings.HasPrefix(m[1], "There were failing tests") {
					r.problem("%s", m[1])
				}
			}
		case "pytest":
			if id, ok := strings.CutPrefix(l, "XPASS "); ok {
				r.unexpected(id)
			}
		case "ctest":
			if m := ctestTimeout.FindStringSubmatch(l); m != nil {
				r.timeout(m[1])
			} else if linkerError.MatchString(l) {
				r.problem("%s", strings.TrimSpace(l))
			}
		}
	}
}

// died says that a test process ended early: what it was to run has no results.
func (r *Report) died(line string) {
	if r.Outcome == Complete {
		r.Outcome = Partial
	}
	r.problem("%s", strings.TrimPrefix(line, "[ERROR] "))
}

// timeout marks a failing test as one that ran out of time.
func (r *Report) timeout(id string) {
	for i := range r.Tests {
		if t := &r.Tests[i]; t.ID == id && t.Status == task.Fail {
			t.Status, t.Message, t.Signature = task.Timeout, "did not end in time", "timeout"
		}
	}
}

// unexpected marks a test that passes although it is said to fail, and would not have been missed:
// no reader of JUnit's XML can tell it from a pass. said is its id, and maybe a reason after it.
func (r *Report) unexpected(said string) {
	for i := range r.Tests {
		t := &r.Tests[i]
		same := func(id string) bool { return said == id || strings.HasPrefix(said, id+" - ") }
		_, below, found := strings.Cut(said, "/")
		if t.Status == task.Pass && (same(t.ID) || found && (below == t.ID || strings.HasPrefix(below, t.ID+" - "))) {
			t.Status, t.Message = task.XFail, "passes although it is expected to fail"
			return
		}
	}
}
