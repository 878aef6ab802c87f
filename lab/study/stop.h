// Requests to stop, checked between steps.
#ifndef LOCUS_LAB_STUDY_STOP_H_
#define LOCUS_LAB_STUDY_STOP_H_

namespace locus::lab {

// From now on SIGTERM and SIGUSR1, and optionally SIGINT, count as stop
// requests and interrupt blocking calls. Writing beyond a limit or to a closed
// pipe becomes an error of the call.
//
// SIGUSR1 is for mpirun, which forwards it and gives ranks time; on SIGINT and
// SIGTERM, mpirun ends them soon.
void InstallSignalHandlers(bool interrupt);

// How many stop requests have arrived.
int StopRequests();

}  // namespace locus::lab

#endif  // LOCUS_LAB_STUDY_STOP_H_
