// What the library asks of the operating system. posix/ and windows/ implement
// it, and the build takes one of them; no other source of the library includes
// a header of a system. (The tool, the lab and the ring are POSIX programs.)
//
// core/cpus.h and core/openmp.h belong to this seam, too.
#ifndef LOCUS_SRC_CORE_OS_H_
#define LOCUS_SRC_CORE_OS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace locus::os {

// Calls these around every fork from now on; each may be null. Where processes
// do not fork, nothing happens. Returns 0, or an error number.
int AtFork(void (*before)(), void (*parent)(), void (*child)());

// Asks for large pages; a hint, which may have no effect.
void AdviseLargePages(void* data, size_t bytes);

// The CPU that runs this thread; -1: not known.
int CurrentCpu();

// Moves this thread to another CPU that it may use, if there is one.
void MoveOff(int cpu);

int ProcessId();

// Files. What fails returns -1 (or false, or nothing) and sets errno. Calls
// that a signal interrupts are resumed.

int OpenToRead(const std::string& path);
// For writing; fails with EEXIST if there is something of that name.
int OpenNew(const std::string& path);
bool Close(int file);
// Bytes read or written, at most those of the span; 0 from Read: the end.
int64_t Read(int file, std::span<std::byte> into);
int64_t ReadAt(int file, uint64_t begin, std::span<std::byte> into);
int64_t Write(int file, std::span<const std::byte> bytes);
// To the disk: the file; the names in a folder, where the system can.
bool Flush(int file);
bool FlushFolder(const std::string& path);
// Bytes of a regular file; nothing for others.
std::optional<uint64_t> RegularSize(int file);
// The first `bytes` of a file, read only, until the last copy is gone; null if
// that fails. The file may be closed.
std::shared_ptr<const std::byte> Map(int file, size_t bytes);

}  // namespace locus::os

#endif  // LOCUS_SRC_CORE_OS_H_
