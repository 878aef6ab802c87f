// Error messages of the tools.
#ifndef LOCUS_CLI_COMPLAIN_H_
#define LOCUS_CLI_COMPLAIN_H_

#include <string>

namespace locus::cli {

// Prints "locus: ..." on standard error: one line without control characters,
// in a single write, so that lines of several processes do not mix.
void Complain(const std::string& message);

}  // namespace locus::cli

#endif  // LOCUS_CLI_COMPLAIN_H_
