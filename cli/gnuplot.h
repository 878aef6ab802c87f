// Runs gnuplot and keeps what it wrote only if all went well.
#ifndef LOCUS_CLI_GNUPLOT_H_
#define LOCUS_CLI_GNUPLOT_H_

#include <functional>
#include <string>

namespace locus::cli {

// Pipes script(beside) to gnuplot, where `beside` is the unfinished output
// `path` of locus/files.h, and finishes it. Throws Error otherwise.
void RunGnuplot(const std::string& path,
                const std::function<std::string(const std::string&)>& script);

}  // namespace locus::cli

#endif  // LOCUS_CLI_GNUPLOT_H_
