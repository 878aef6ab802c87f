// A program on MPI, from its start to its last words. What all ranks find wrong
// is said by rank 0 alone; a lost rank by each one that notices.
#ifndef LOCUS_RING_CLI_SESSION_H_
#define LOCUS_RING_CLI_SESSION_H_

#include <functional>

#include "locus/ring_group.h"

namespace locus::ring {

// Starts MPI, calls `body`, ends MPI; returns the exit code. Starting and
// ending may take `deadline_seconds` each: after that the program ends with a
// sentence and code 1, since MPI has no deadline of its own.
//
// An Error of `body` is one that every rank throws. Anything else that it
// throws is of this rank alone, and ends the others as well.
int RunSession(double deadline_seconds, const std::function<int()>& body);

// Runs `work` on rank 0. An Error there is thrown on every rank, so that nobody
// waits for a rank that has given up.
void OnFirstRank(const Group& all, const std::function<void()>& work);

// The end of a rank that leaves it to rank 0 to say what is wrong: the exit
// code, after a moment.
int StayQuiet();

}  // namespace locus::ring

#endif  // LOCUS_RING_CLI_SESSION_H_
