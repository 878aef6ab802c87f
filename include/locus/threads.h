// Whose threads the engine runs on.
#ifndef LOCUS_THREADS_H_
#define LOCUS_THREADS_H_

namespace locus {

// Runs body(argument) on `threads` threads at once, the caller among them, or
// on fewer, and returns when all have returned.
using Team = void (*)(int threads, void (*body)(void*), void* argument);

// From now on the engine works on `team`, that is on threads which the program
// has already, instead of a pool of its own. Two pools take the cores from each
// other: threads of OpenMP, for one, go on spinning for milliseconds after
// their work. nullptr: its own pool again. Results are the same bits either
// way. Not to be called while the engine is at work.
void UseTeam(Team team);

}  // namespace locus

#endif  // LOCUS_THREADS_H_
