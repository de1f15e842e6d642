# Makes of what ns-2 traces (tagged form) at the queues of the ingresses of dumbbell.tcl a line for each packet or
# block that leaves one:
#     INGRESS TIME_S FLOW NUMBER BYTES
# Ingress 0 is node 2, ingress 1 node 4, ingress 2 node 6; NUMBER is TCP's, 0 for the first packet.
$1 == "-" { print ($4 - 2) / 2, $2, $12, $20, $10 }
