# lab.compare_*: run control, its parts in C++ and the program from outside.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
file(GLOB compare_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/compare_*_test.cc)
add_executable(compare_test ${compare_sources})
target_link_libraries(compare_test PRIVATE locus_study locus_build
  fmt::fmt GTest::gtest_main)
gtest_discover_tests(compare_test TEST_PREFIX lab. PROPERTIES LABELS lab
  TIMEOUT 120 DISCOVERY_TIMEOUT 60)

foreach(suite IN ITEMS Study Resume Signals Damage Usage)
  add_test(NAME lab.compare_${suite} COMMAND Python3::Interpreter
    ${CMAKE_CURRENT_LIST_DIR}/compare_test.py $<TARGET_FILE:locus_compare> ${suite})
  set_tests_properties(lab.compare_${suite} PROPERTIES LABELS lab TIMEOUT 600)
endforeach()

if(LOCUS_RING)
  include(${CMAKE_CURRENT_LIST_DIR}/ranks.cmake)
endif()
