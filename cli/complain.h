// What the tools say when something is wrong.
#ifndef LOCUS_CLI_COMPLAIN_H_
#define LOCUS_CLI_COMPLAIN_H_

#include <string>

namespace locus::cli {

// "locus: ..." on standard error: one line without control characters, by one
// write, so that lines of several processes do not mix.
void Complain(const std::string& message);

}  // namespace locus::cli

#endif  // LOCUS_CLI_COMPLAIN_H_
