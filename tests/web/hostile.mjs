// Strings that would run a script if a page took them for markup.
const RUN = 'window.ran=(window.ran||0)+1';
const PAYLOADS = [
  `</script><script>${RUN}</script>`,
  `<img src=x onerror="${RUN}">`,
  `"><svg onload="${RUN}">`,
  `' autofocus onfocus='${RUN}`,
  `" autofocus tabindex=0 onfocus="${RUN}`,
  `--><script>${RUN}</script><!--`,
  `</style><script>${RUN}</script>`,
  `</textarea></title><iframe srcdoc="<script>parent.${RUN}</script>">`,
  `<!--locus:settings-->&lt;script&gt;${RUN}&lt;/script&gt;`,
  `{}</script  ><a href="javascript:${RUN}">\u2028\u2029\\u003c`,
];
export const MARK = PAYLOADS.join('');

/** Every string of `value`, keys of objects in `keyed` too, with all payloads behind it. */
function spoiled(value, kept, keyed) {
  if (typeof value === 'string') return kept.has(value) ? value : value + MARK;
  if (Array.isArray(value)) return value.map((one) => spoiled(one, kept, keyed));
  if (value === null || typeof value !== 'object') return value;
  const made = Object.entries(value).map(([key, one]) => [key, spoiled(one, kept, keyed)]);
  if (keyed.has(value)) made.push([MARK, MARK], [`with_${MARK}`, { [MARK]: [MARK] }]);
  return Object.fromEntries(made);
}

// Words that choose a figure, a table or a way to draw.
const WORDS = ['text', 'none', 'rope', 'loss', 'accuracy', 'fused', 'materialised', 'attention'];

/** The same results from somebody who means harm; with `all`, not even such words are spared. */
export function hostile(results, all) {
  const { machine, settings } = results;
  const keyed = new Set([results, machine, settings, settings.model, settings.tasks[0]]);
  const made = spoiled(results, new Set(all ? [] : WORDS), keyed);
  made.failed.push({ id: MARK, reason: MARK });
  made.interrupted = true;
  if (all) made.extensions = []; // they belong to the task "text"
  return made;
}
