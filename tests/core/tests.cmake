# core.short_calls: where the threads of the pool run, over 20 processes.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
add_executable(short_calls ${CMAKE_CURRENT_LIST_DIR}/short_calls.cc)
target_link_libraries(short_calls PRIVATE locus locus_build fmt::fmt)
add_test(NAME core.short_calls COMMAND Python3::Interpreter
  ${CMAKE_CURRENT_LIST_DIR}/short_calls.py $<TARGET_FILE:short_calls>)
set_tests_properties(core.short_calls PROPERTIES LABELS core
  SKIP_RETURN_CODE 77 RUN_SERIAL TRUE TIMEOUT 600)
