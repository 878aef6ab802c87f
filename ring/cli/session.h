// A program on MPI, from start to end. Errors that all ranks find are printed
// by rank 0 only; a lost rank by every rank that notices.
#ifndef LOCUS_RING_CLI_SESSION_H_
#define LOCUS_RING_CLI_SESSION_H_

#include <functional>

#include "locus/ring_group.h"

namespace locus::ring {

// Initialises MPI, calls `body`, and finalises MPI; returns the exit code.
// Initialising and finalising may take `deadline_seconds` each: after that the
// program ends with a message and code 1, since MPI has no deadline of its own.
//
// An Error from `body` is one that every rank throws. Any other exception is
// specific to this rank, and ends the others as well.
int RunSession(double deadline_seconds, const std::function<int()>& body);

// Runs `work` on rank 0. An Error there is thrown on every rank, so that none
// waits for a rank that has given up.
void OnFirstRank(const Group& all, const std::function<void()>& work);

// Ends a rank whose error rank 0 reports: returns the exit code after a moment.
int StayQuiet();

}  // namespace locus::ring

#endif  // LOCUS_RING_CLI_SESSION_H_
