// The wish to stop, heard between two steps.
#ifndef LOCUS_LAB_STUDY_STOP_H_
#define LOCUS_LAB_STUDY_STOP_H_

namespace locus::lab {

// From now on SIGTERM and SIGUSR1, and if wanted SIGINT, set the wish and
// interrupt calls that wait. Writing past a limit or to a closed pipe becomes
// an error of the call.
//
// SIGUSR1 is for mpirun, which passes it on and leaves the ranks their time;
// SIGINT and SIGTERM it takes as an order to end them soon.
void InstallSignalHandlers(bool interrupt);

// How many stop requests have arrived.
int StopRequests();

}  // namespace locus::lab

#endif  // LOCUS_LAB_STUDY_STOP_H_
