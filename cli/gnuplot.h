// Runs gnuplot, and keeps its output only on success.
#ifndef LOCUS_CLI_GNUPLOT_H_
#define LOCUS_CLI_GNUPLOT_H_

#include <functional>
#include <string>

namespace locus::cli {

// Passes script(beside) to gnuplot, where `beside` is the unfinished output for
// `path` (locus/files.h), and finishes it. Throws Error on failure.
void RunGnuplot(const std::string& path,
                const std::function<std::string(const std::string&)>& script);

}  // namespace locus::cli

#endif  // LOCUS_CLI_GNUPLOT_H_
