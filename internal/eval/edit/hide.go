package edit

import "strings"

// Invert makes the test pass where its check fails; "" where its form is not known.
func Invert(language, text string, t Test) string {
	body := text[t.Inside:t.End]
	if language != "py" || strings.Contains(body, `"""`) || strings.Contains(body, "'''") {
		return ""
	}
	head := t.Indent + "    import pytest\n" + t.Indent + "    with pytest.raises(AssertionError):\n"
	for line := range strings.Lines(body) {
		if strings.TrimSpace(line) != "" {
			line = "    " + line
		}
		head += line
	}
	return text[:t.Inside] + head + text[t.End:]
}

// MayFail marks the test as one that need not pass; "" where its form is not known.
func MayFail(language, text string, t Test) string {
	if language != "py" {
		return ""
	}
	return text[:t.Start] + t.Indent + "import pytest\n\n\n" + t.Indent + "@pytest.mark.xfail(reason=\"later\")\n" + text[t.Start:]
}

// Unheard has what the test finds reach nobody; "" where its form is not known.
func Unheard(language, text string, t Test) string {
	switch language {
	case "go":
		return text[:t.Inside] + "\t" + t.Param + " = &testing.T{}\n" + text[t.Inside:]
	case "py":
		return text[:t.Start] + t.Indent + "def settled(test):\n" + t.Indent + "    return lambda *args: None\n\n\n" + t.Indent + "@settled\n" + text[t.Start:]
	}
	return ""
}
