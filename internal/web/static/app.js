// Everything works without this script: it makes pages live, folds texts in where they are asked
// for, and adds keys. The server's markup is inert, so it is put in as it is.

const $ = (sel, at = document) => at.querySelector(sel);
const $$ = (sel, at = document) => [...at.querySelectorAll(sel)];

function fragment(html) {
  const t = document.createElement('template');
  t.innerHTML = html;
  return t.content;
}

// fits says whether two pieces differ in texts and attributes alone.
function fits(a, b) {
  return a.nodeName === b.nodeName && a.id === b.id && a.childNodes.length === b.childNodes.length && [...a.childNodes].every((c, i) => fits(c, b.childNodes[i]));
}

// renew makes one piece like the other that it fits. What the reader marked, opened or is at stays.
function renew(a, b) {
  if (a.nodeType !== Node.ELEMENT_NODE) {
    if (a.data !== b.data) a.data = b.data;
    return;
  }
  for (const { name, value } of b.attributes) if (a.getAttribute(name) !== value) a.setAttribute(name, value);
  for (const { name } of [...a.attributes]) if (name !== 'open' && !b.hasAttribute(name)) a.removeAttribute(name);
  a.childNodes.forEach((c, i) => renew(c, b.childNodes[i]));
}

// replace puts a new piece in the place of the old one of the same id. What the reader opened stays
// open; a form that somebody is writing in stays as it is.
function replace(old, now) {
  const active = document.activeElement;
  if (old.contains(active) && active.matches('textarea, input')) return;
  if ($$('textarea, input:not([type=hidden])', old).some((f) => f.value !== f.defaultValue)) return;
  if (fits(old, now)) return renew(old, now);
  const open = new Map($$('details[id]', old).map((d) => [d.id, d.open]));
  const focused = old.contains(active) ? active.closest('[id]')?.id : '';
  old.replaceWith(now);
  for (const d of $$('details[id]', now)) if (open.get(d.id)) d.open = true;
  if (focused) (document.getElementById(focused)?.querySelector('summary, a') ?? document.getElementById(focused))?.focus({ preventScroll: true });
}

// patch applies a fragment: known ids are replaced, rows that are new go to the end.
function patch(html) {
  const list = $('#step-list');
  const atEnd = innerHeight + scrollY > document.documentElement.scrollHeight - 200;
  for (const el of [...fragment(html).children]) {
    const old = el.id && document.getElementById(el.id);
    if (old) replace(old, el);
    else if (el.localName === 'li' && list) list.append(el);
  }
  if (atEnd && list) scrollTo({ top: document.documentElement.scrollHeight });
}

function live() {
  const box = $('#live');
  if (!box?.dataset.src || !('EventSource' in window)) return;
  const say = (cls, text) => {
    box.className = 'live ' + cls;
    $('[data-text]', box).textContent = text;
  };
  const rows = $('#rows');
  let es;
  const start = () => {
    es = new EventSource(box.dataset.src);
    es.onopen = () => say('on', 'live');
    es.onerror = () => {
      say('off', es.readyState === EventSource.CLOSED ? 'not live' : 'reconnecting');
    };
    es.addEventListener('patch', (e) => {
      patch(e.data);
      const task = $('[data-task]');
      if (task) task.dataset.seq = e.lastEventId;
    });
    es.addEventListener('again', () => location.reload());
    es.addEventListener('row', (e) => {
      const table = fragment('<table><tbody>' + e.data + '</tbody></table>');
      const el = $('tr', table);
      if (!el || !rows) return;
      el.classList.add('fresh');
      const old = document.getElementById(el.id);
      if (old) old.replaceWith(el);
      else rows.prepend(el);
      const none = $('#none');
      if (none) none.hidden = true;
    });
    es.addEventListener('gone', (e) => document.getElementById(e.data)?.remove());
  };
  start();
  addEventListener('pagehide', () => es.close());
  addEventListener('pageshow', (e) => e.persisted && location.reload());
}

// Words to the task: sent in place, told in place. On any trouble the form is sent the plain way.
function words() {
  document.addEventListener('submit', async (e) => {
    const form = e.target;
    if (!form.matches('form[data-word]')) return;
    e.preventDefault();
    const button = $('button', form);
    button.disabled = true;
    const flash = $('#flash');
    const tell = (text, bad) => {
      const p = document.createElement('p');
      p.textContent = text;
      if (bad) p.className = 'err';
      flash.replaceChildren(p);
      flash.scrollIntoView({ block: 'nearest' });
    };
    try {
      const res = await fetch(form.action, { method: 'POST', headers: { Accept: 'text/plain' }, body: new URLSearchParams(new FormData(form)) });
      tell(await res.text(), !res.ok);
      if (res.ok) form.reset();
    } catch {
      tell('The server cannot be reached. Nothing was sent.', true);
    }
    button.disabled = false;
  });
}

// Older steps and whole texts come on demand.
function demand() {
  document.addEventListener('click', async (e) => {
    const earlier = e.target.closest('a[data-earlier]');
    const whole = e.target.closest('a[data-whole]');
    if (e.ctrlKey || e.metaKey || e.shiftKey || !(earlier || whole)) return;
    e.preventDefault();
    const link = earlier ?? whole;
    link.setAttribute('aria-busy', 'true');
    try {
      const res = await fetch(earlier ? earlier.dataset.earlier : whole.href);
      if (!res.ok) throw new Error(res.status);
      const got = fragment(await res.text());
      if (earlier) {
        const at = earlier.closest('li');
        const anchor = at.nextElementSibling;
        const top = anchor?.getBoundingClientRect().top ?? 0;
        at.replaceWith(...got.children);
        if (anchor) scrollBy(0, anchor.getBoundingClientRect().top - top);
        return;
      }
      const part = $('[data-part]', got);
      const place = whole.closest('.result') ?? whole.closest('.fold, .more') ?? whole;
      if (!part) throw new Error('no part');
      place.replaceWith(...part.children);
    } catch {
      location.assign(link.href);
    }
  });
}

// The theme changes at once; the cookie carries it to the next page.
function theme() {
  document.addEventListener('submit', (e) => {
    if (!e.target.matches('[data-theme-form]')) return;
    e.preventDefault();
    const next = e.submitter.value;
    const root = document.documentElement;
    fetch('/theme', { method: 'POST', redirect: 'manual', body: new URLSearchParams({ theme: next, next: '/' }) });
    root.dataset.theme = next === 'auto' ? '' : next;
    const order = { '': ['dark', 'Dark'], dark: ['light', 'Light'], light: ['auto', 'As the system has it'] };
    const [value, title] = order[root.dataset.theme];
    e.submitter.value = value;
    e.submitter.title = title;
    $('.vh', e.submitter).textContent = 'Switch theme: ' + title;
  });
}

// j and k go from step to step, o opens the calls of the one they are at.
function keys() {
  document.addEventListener('keydown', (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.target.matches?.('input, textarea, select')) return;
    const steps = $$('#step-list > .step');
    if (!steps.length) return;
    const here = steps.findIndex((s) => s.contains(document.activeElement));
    if (e.key === 'j' || e.key === 'k') {
      const at = here < 0 ? (e.key === 'j' ? 0 : steps.length - 1) : Math.min(steps.length - 1, Math.max(0, here + (e.key === 'j' ? 1 : -1)));
      steps[at].focus({ preventScroll: true });
      steps[at].scrollIntoView({ block: 'start' });
    } else if (e.key === 'o' && here >= 0) {
      const calls = $$('details.call', steps[here]);
      const open = !calls.every((c) => c.open);
      for (const c of calls) c.open = open;
    }
  });
}

live();
words();
demand();
theme();
keys();
