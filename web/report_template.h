// The page that `locus compare` fills: see web/README.md for its marks.
#ifndef LOCUS_WEB_REPORT_TEMPLATE_H_
#define LOCUS_WEB_REPORT_TEMPLATE_H_

#include <string_view>

namespace locus::web {

// HTML with the marks unfilled. Its source is made by web/build.mjs.
std::string_view ReportTemplate();

}  // namespace locus::web

#endif  // LOCUS_WEB_REPORT_TEMPLATE_H_
