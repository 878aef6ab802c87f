# 64-bit Windows, by Debian's MinGW-w64 with POSIX threads (std::thread needs them).
set(CMAKE_SYSTEM_NAME Windows)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(CMAKE_C_COMPILER x86_64-w64-mingw32-gcc-posix)
set(CMAKE_CXX_COMPILER x86_64-w64-mingw32-g++-posix)
set(CMAKE_RC_COMPILER x86_64-w64-mingw32-windres)
set(CMAKE_FIND_ROOT_PATH /usr/x86_64-w64-mingw32)
# Libraries of the build machine are of no use.
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
# Programs carry the compiler's runtime along.
set(CMAKE_EXE_LINKER_FLAGS_INIT -static)
# Tests run where there is Wine.
find_program(LOCUS_WINE NAMES wine64 wine PATHS /usr/lib/wine)
if(LOCUS_WINE)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${LOCUS_WINE})
endif()
