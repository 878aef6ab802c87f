// core/os.h on Windows: files through the C library, which sets errno, and
// through handles where the C library has no equivalent.
#include "core/os.h"

// windows.h first: the others need its types.
#include <fcntl.h>
#include <io.h>
#include <process.h>
#include <sys/stat.h>
#include <windows.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <limits>
#include <thread>

#include "core/cpus.h"
#include "core/openmp.h"

namespace locus {
namespace os {
namespace {

// At most this many bytes are read or written per call.
constexpr size_t kMostBytes = size_t{1} << 30;

HANDLE HandleOf(int file) {
  return reinterpret_cast<HANDLE>(_get_osfhandle(file));
}

unsigned int Count(size_t bytes) {
  return static_cast<unsigned int>(std::min(bytes, kMostBytes));
}

}  // namespace

int AtFork(void (*)(), void (*)(), void (*)()) { return 0; }
void AdviseLargePages(void*, size_t) {}
int CurrentCpu() { return -1; }
void MoveOff(int) {}
int ProcessId() { return _getpid(); }

int OpenToRead(const std::string& path) {
  return _open(path.c_str(), _O_RDONLY | _O_BINARY | _O_NOINHERIT);
}

int OpenNew(const std::string& path) {
  return _open(path.c_str(),
               _O_WRONLY | _O_CREAT | _O_EXCL | _O_BINARY | _O_NOINHERIT,
               _S_IREAD | _S_IWRITE);
}

bool Close(int file) { return _close(file) == 0; }

int64_t Read(int file, std::span<std::byte> into) {
  return _read(file, into.data(), Count(into.size()));
}

int64_t ReadAt(int file, uint64_t begin, std::span<std::byte> into) {
  OVERLAPPED place{};
  place.Offset = static_cast<DWORD>(begin);
  place.OffsetHigh = static_cast<DWORD>(begin >> 32);
  DWORD got = 0;
  if (ReadFile(HandleOf(file), into.data(), Count(into.size()), &got, &place) !=
          0 ||
      GetLastError() == ERROR_HANDLE_EOF) {
    return got;
  }
  errno = EIO;
  return -1;
}

int64_t Write(int file, std::span<const std::byte> bytes) {
  return _write(file, bytes.data(), Count(bytes.size()));
}

bool Flush(int file) { return _commit(file) == 0; }
bool FlushFolder(const std::string&) { return true; }  // not supported

std::optional<uint64_t> RegularSize(int file) {
  struct _stat64 status {};
  if (_fstat64(file, &status) != 0 || (status.st_mode & _S_IFREG) == 0) {
    return {};
  }
  return static_cast<uint64_t>(status.st_size);
}

std::shared_ptr<const std::byte> Map(int file, size_t bytes) {
  const HANDLE mapping = CreateFileMappingA(
      HandleOf(file), /*lpFileMappingAttributes=*/nullptr, PAGE_READONLY,
      /*dwMaximumSizeHigh=*/0, /*dwMaximumSizeLow=*/0, /*lpName=*/nullptr);
  const void* data =
      mapping == nullptr
          ? nullptr
          : MapViewOfFile(mapping, FILE_MAP_READ, /*dwFileOffsetHigh=*/0,
                          /*dwFileOffsetLow=*/0, bytes);
  if (mapping != nullptr) CloseHandle(mapping);  // the view keeps it alive
  if (data == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  return {static_cast<const std::byte*>(data),
          [](const std::byte* p) { UnmapViewOfFile(p); }};
}

}  // namespace os

double CpuQuota(const std::string&) {
  return std::numeric_limits<double>::infinity();
}

int AffinityCpus() {
  DWORD_PTR process = 0, system = 0;
  if (GetProcessAffinityMask(GetCurrentProcess(), &process, &system) != 0 &&
      process != 0) {
    return std::popcount(static_cast<uint64_t>(process));
  }
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// OpenMP runtimes vary on Windows: calls run on the library's own pool.
std::optional<const OpenMp*> FindOpenMp() noexcept { return nullptr; }

}  // namespace locus
