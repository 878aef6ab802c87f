# bench.*: the benchmark programs work; nothing is said about times.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
foreach(pair IN ITEMS Named=locus_bench Short=locus_short)
  string(REPLACE "=" ";" pair ${pair})
  list(GET pair 0 suite)
  list(GET pair 1 program)
  if(TARGET ${program})
    add_test(NAME bench.${suite} COMMAND Python3::Interpreter
      ${CMAKE_CURRENT_LIST_DIR}/bench_test.py ${suite} $<TARGET_FILE:${program}>)
    set_tests_properties(bench.${suite} PROPERTIES LABELS bench)
  endif()
endforeach()

# Counts of instructions against bench/counts.json, and the tool that compares.
if(TARGET locus_counts)
  set(counts ${PROJECT_SOURCE_DIR}/tools/counts.py)
  add_test(NAME bench.counts COMMAND Python3::Interpreter
    ${counts} --program $<TARGET_FILE:locus_counts>)
  add_test(NAME bench.counts_tool COMMAND Python3::Interpreter
    ${CMAKE_CURRENT_LIST_DIR}/counts_test.py ${counts} $<TARGET_FILE:locus_counts>)
  set_tests_properties(bench.counts bench.counts_tool PROPERTIES
    LABELS bench SKIP_RETURN_CODE 77 TIMEOUT 1800 PROCESSORS 2)
endif()

# Two builds beside each other.
if(TARGET locus_turns)
  add_test(NAME bench.versions COMMAND Python3::Interpreter
    ${CMAKE_CURRENT_LIST_DIR}/versions_test.py
    ${PROJECT_SOURCE_DIR}/bench/versions.py $<TARGET_FILE:locus_turns>)
  set_tests_properties(bench.versions PROPERTIES LABELS bench)
endif()
