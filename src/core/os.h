// Everything the library needs from the operating system, implemented in posix/
// and windows/; the build compiles one of them. No other source of the library
// includes system headers. (The tool, the lab and the ring are POSIX programs.)
//
// core/cpus.h and core/openmp.h belong to this interface, too.
#ifndef LOCUS_SRC_CORE_OS_H_
#define LOCUS_SRC_CORE_OS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace locus::os {

// Registers handlers to be called around every fork; each may be null. Does
// nothing on systems without fork. Returns 0 or an error number.
int AtFork(void (*before)(), void (*parent)(), void (*child)());

// Requests large pages; a hint that may have no effect.
void AdviseLargePages(void* data, size_t bytes);

// The CPU that this thread is running on; -1 if unknown.
int CurrentCpu();

// Moves this thread from `cpu` to another CPU that it may use, if there is one.
void MoveOff(int cpu);

int ProcessId();

// Files. Functions that fail return -1 (or false, or nothing) and set errno.
// Calls interrupted by a signal are retried.

int OpenToRead(const std::string& path);
// Creates a file for writing; fails with EEXIST if the name is taken.
int OpenNew(const std::string& path);
bool Close(int file);
// Return the number of bytes read or written, at most the size of the span;
// Read returns 0 at the end of the file.
int64_t Read(int file, std::span<std::byte> into);
int64_t ReadAt(int file, uint64_t begin, std::span<std::byte> into);
int64_t Write(int file, std::span<const std::byte> bytes);
// Flush to disk a file, or the entries of a folder where the system supports
// that.
bool Flush(int file);
bool FlushFolder(const std::string& path);
// Size in bytes of a regular file; nothing for other files.
std::optional<uint64_t> RegularSize(int file);
// Maps the first `bytes` of a file read-only, for as long as a copy of the
// pointer exists; null on failure. The file may be closed meanwhile.
std::shared_ptr<const std::byte> Map(int file, size_t bytes);

}  // namespace locus::os

#endif  // LOCUS_SRC_CORE_OS_H_
