// Commands that are separate programs, so that `locus list` loads neither
// libtorch nor MPI: `locus compare` is locus-compare, `locus ring` is
// locus-ring, in the folder of `locus` itself.
#ifndef LOCUS_CLI_COMPANION_H_
#define LOCUS_CLI_COMPANION_H_

#include <CLI/CLI.hpp>

namespace locus::cli {

// Lists the companions in the help of the tool.
void AddCompanions(CLI::App& app);

// Executes the companion that argv[1] names, with the arguments after it;
// returns if it names none. Throws Error if the program does not exist.
void BecomeCompanion(int argc, char** argv);

}  // namespace locus::cli

#endif  // LOCUS_CLI_COMPANION_H_
