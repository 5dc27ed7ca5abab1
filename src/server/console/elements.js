// Makes the elements of the page. Texts of the server only ever become text, never markup.

/** An element with classes (`p.dim`), attributes and children; children that are nothing are left out. */
export function element(name, attributes = {}, ...children) {
  const [tag, ...classes] = name.split('.');
  const made = document.createElement(tag);
  made.classList.add(...classes);
  for (const [attribute, value] of Object.entries(attributes)) {
    if (attribute === 'onclick') made.addEventListener('click', value);
    else if (value !== undefined && value !== false) made.setAttribute(attribute, value === true ? '' : value);
  }
  made.append(...children.filter((child) => child !== undefined && child !== null && child !== ''));
  return made;
}

export function byId(id) {
  return document.getElementById(id);
}

/** Milliseconds since 1970 of a timestamp. */
export function millis(time) {
  return time ? time.seconds * 1000 + time.nanos / 1e6 : undefined;
}

/** The time of day, to the millisecond. */
export function clock(ms) {
  const at = new Date(ms);
  const two = (number) => String(number).padStart(2, '0');
  const fraction = String(at.getMilliseconds()).padStart(3, '0');
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${fraction}`;
}

/** A length of time as people read it: `340 ms`, `1.2 s`, `3 min`. */
export function span(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${Math.round(ms / 100) / 10} s`;
  if (ms < 3_600_000) return `${Math.round(ms / 60_000)} min`;
  return `${Math.round(ms / 360_000) / 10} h`;
}

/** Whether an enum's value says something. */
export function isSet(word) {
  return word !== undefined && word !== 'unspecified';
}
