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
