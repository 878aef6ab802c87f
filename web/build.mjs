// Bundles src/report.ts into one HTML file, and that into a C++ source.
//
//   node build.mjs OUT    writes OUT/report_template.html and .cc
import { bundle, fill, insideScript, licences, styledPage, write } from './bundle.mjs';

const out = process.argv[2];
if (!out) {
  console.error('usage: node build.mjs OUT');
  process.exit(2);
}

/** A C++ source that holds `text`. Raw literals, cut well below any compiler's limit. */
function source(text) {
  const pieces = text.match(/.{1,8000}/gsu);
  const literals = pieces.map((piece) => `R"locus~(${piece})locus~"`);
  return `// Made by web/build.mjs.
#include "web/report_template.h"

namespace locus::web {

std::string_view ReportTemplate() {
  static constexpr char kPage[] =
${literals.join('\n')};
  return {kPage, sizeof(kPage) - 1};
}

}  // namespace locus::web
`;
}

let page = await styledPage('report.html', 'report.css');
page = fill(page, '/*script*/', insideScript(await bundle('report.ts', { format: 'iife' })));
page = fill(page, '/*licences*/', licences());
write(out, 'report_template.html', page);
write(out, 'report_template.cc', source(page));
