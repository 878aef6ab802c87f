# The report page in a real browser. Pages are made from made-up results by the
# code that makes real ones.
find_program(LOCUS_CHROMIUM NAMES chromium chromium-browser google-chrome)
if(NOT LOCUS_CHROMIUM)
  message(FATAL_ERROR "the tests of web/ need Chromium: run tools/setup.sh")
endif()
set(web_tests ${CMAKE_CURRENT_LIST_DIR})
set(web_modules ${PROJECT_BINARY_DIR}/web/node_modules)
set(web_pages ${PROJECT_BINARY_DIR}/web/pages)

add_test(NAME web.make_pages
  COMMAND ${web_tests}/make_pages.sh ${LOCUS_NODE} $<TARGET_FILE:locus_compare> ${web_pages})
set_tests_properties(web.make_pages PROPERTIES
  LABELS web TIMEOUT 300 FIXTURES_SETUP web_pages)

foreach(name offline charts save table access layout live hostile)
  add_test(NAME web.${name}
    COMMAND ${LOCUS_NODE} --test ${web_tests}/${name}.test.mjs)
  set_tests_properties(web.${name} PROPERTIES
    LABELS web TIMEOUT 300 FIXTURES_REQUIRED web_pages
    ENVIRONMENT "LOCUS_CHROMIUM=${LOCUS_CHROMIUM};LOCUS_WEB_MODULES=${web_modules};LOCUS_WEB_PAGES=${web_pages}")
endforeach()

add_test(NAME web.types
  COMMAND ${LOCUS_NODE} ${web_modules}/typescript/bin/tsc --noEmit
    --project ${PROJECT_SOURCE_DIR}/web --baseUrl ${web_modules})
add_test(NAME web.lock
  COMMAND ${LOCUS_NODE} --test ${web_tests}/lock.test.mjs)
set_tests_properties(web.types web.lock PROPERTIES LABELS web TIMEOUT 120)
