# fuzz.*: random calls against the reference, a minute of CPU time; longer by
# hand: build/release/tests/call_fuzz --seconds 1800 --seed 7
add_executable(call_fuzz ${CMAKE_CURRENT_LIST_DIR}/call_fuzz.cc)
target_link_libraries(call_fuzz PRIVATE locus locus_build fmt::fmt GTest::gtest)
target_include_directories(call_fuzz PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
add_test(NAME fuzz.calls COMMAND call_fuzz --seconds 60 --seed 1)
set_tests_properties(fuzz.calls PROPERTIES LABELS fuzz TIMEOUT 1800 COST 60)
