package browser

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestSteerAndStop: words to the agent, and the word to end, reach the task and are told to whoever
// said them, with scripts and without.
func TestSteerAndStop(t *testing.T) {
	t.Parallel()
	s := serve(t, "testdata/steered.yaml", "")
	browser := start(t)
	first, second, third := s.gate.hold(1), s.gate.hold(2), s.gate.hold(3)
	id := s.ask(t, s.issue(t))
	first.wait(t)

	scripted := signIn(t, browser, s, "/tasks/"+id)
	scripted.shows("#live.on", "live")
	scripted.write("#steer", "use the floor from the price list")
	scripted.click("#actions form[action$='/steer'] button")
	scripted.shows("#flash", "Noted. The agent is told before its next step.")
	if left := eval[string](scripted, `document.querySelector('#steer').value`); left != "" {
		t.Errorf("%q is still in the form", left)
	}
	first.letGo()
	second.wait(t) // its turn expects the words
	s.until(t, id, "task.steered", map[string]string{"who": "root"})
	scripted.shows("#step-list", "use the floor from the price list")

	plain := open(t, scripted.ctx)
	plain.withoutScripts()
	plain.visit(s.base + "/tasks/" + id)
	if class := eval[string](plain, `document.querySelector('#live').className`); class != "live" {
		t.Errorf("scripts run: the live light is %q", class)
	}
	plain.write("#steer", "and round it down")
	plain.goes(chromedp.Click(chromedp.CSS("#actions form[action$='/steer'] button")))
	plain.says("#flash", "Noted. The agent is told before its next step.")
	second.letGo()
	third.wait(t)
	scripted.shows("#step-list", "and round it down")

	plain.click("#actions details.stop > summary")
	plain.write("#why", "the shop closes")
	plain.goes(chromedp.Click(chromedp.CSS("#actions form[action$='/stop'] button")))
	plain.says("#flash", "Noted. The task stops; what it changed is kept.")
	s.until(t, id, "task.stop_requested", map[string]string{"who": "root", "reason": "the shop closes"})
	s.until(t, id, "state.changed", map[string]string{"to": "stopped"})
	scripted.shows("#verdict", "Stopped")
	scripted.shows("#verdict", "the shop closes")
	plain.quiet(s.base)

	fourth := s.gate.hold(4)
	again := s.ask(t, s.issue(t))
	fourth.wait(t)
	scripted.visit(s.base + "/tasks/" + again)
	scripted.click("#actions details.stop > summary")
	scripted.write("#why", "twice is enough")
	scripted.click("#actions form[action$='/stop'] button")
	scripted.shows("#flash", "Noted. The task stops; what it changed is kept.")
	s.until(t, again, "task.stop_requested", map[string]string{"who": "root", "reason": "twice is enough"})
	scripted.shows("#verdict", "Stopped")
	scripted.quiet(s.base)
}

// TestAnswerAndApprove: a question is answered, and a verified change approved, from the page; with
// a script in place, without one by another page. (That an approval works with scripts is part of
// TestLive.)
func TestAnswerAndApprove(t *testing.T) {
	t.Parallel()
	s := serve(t, "testdata/ask.yaml", "publish: hold")
	browser := start(t)
	id := s.ask(t, s.issue(t))
	s.until(t, id, "question.asked", map[string]string{"n": "1"})
	scripted := signIn(t, browser, s, "/tasks/"+id)
	scripted.shows("#actions .question", "Zero, or an error?")
	scripted.write("#answer", "zero please")
	scripted.click("#actions .ask button")
	scripted.shows("#flash", "Noted.")
	s.until(t, id, "question.answered", nil)
	scripted.shows("#step-list", "zero please")
	scripted.shows("#actions .question", "Is the name of the test right?")

	plain := open(t, scripted.ctx)
	plain.withoutScripts()
	plain.visit(s.base + "/tasks/" + id)
	plain.write("#answer", "yes, it is")
	plain.goes(chromedp.Click(chromedp.CSS("#actions .ask button")))
	plain.says("#flash", "Noted.")
	held := s.until(t, id, "publication.held", nil)
	scripted.shows("#actions .ask h2", "Waits for approval")
	plain.visit(s.base + "/tasks/" + id)
	plain.goes(chromedp.Click(chromedp.CSS("#actions form[action$='/approve'] button")))
	plain.says("#flash", "Approved. The change is being published.")
	s.until(t, id, "publication.approved", map[string]string{"who": "root", "tree": held.Payload["tree"].(string)})
	s.until(t, id, "state.changed", map[string]string{"to": "in_review"})
	scripted.shows("#status", "in review")
	scripted.quiet(s.base)
	plain.quiet(s.base)
}

// says looks once at a page that no script changes.
func (b *tab) says(selector, text string) {
	b.t.Helper()
	if got := eval[string](b, `document.querySelector(`+quote(selector)+`)?.innerText ?? ''`); !strings.Contains(got, text) {
		b.t.Errorf("%s: %s is %q, without %q", b.at(), selector, got, text)
	}
}
