// How many threads the engine runs on, and whose.
#ifndef LOCUS_THREADS_H_
#define LOCUS_THREADS_H_

namespace locus {

// How many CPUs this process may use: those of its affinity mask, and no more
// than the CPU quota of its control groups (cgroup v1 or v2), rounded up. Asked
// once, when it is first needed. The default wherever a number of threads is 0.
int UsableCpus();

// Runs body(argument) on `threads` threads at once, the caller among them, or
// on fewer, and returns when all have returned. The body does not throw.
using Team = void (*)(int threads, void (*body)(void*), void* argument);

// From now on the engine works on `team`, that is on threads which the program
// has already, instead of a pool of its own. Two pools take the cores from each
// other: threads of OpenMP, for one, go on spinning for milliseconds after
// their work. nullptr: its own pool again. Results are the same bits either
// way. Not to be called while the engine is at work. In a forked process the
// pool works as in any other; whether a team does is for the team to say.
void UseTeam(Team team);

// What the thread that called the engine runs between pieces of a long call; it
// ends the call by throwing, and the exception reaches the caller. Calls that
// change something in place leave it half changed then, KvCache apart.
using InterruptCheck = void (*)();

// Sets the check of this thread's calls, nullptr for none, and gives the one
// before.
InterruptCheck SetInterruptCheck(InterruptCheck check);

}  // namespace locus

#endif  // LOCUS_THREADS_H_
