# services.dwell for NixOS: the configuration as Nix values. The key stays outside of the store:
#
#   services.dwell = {
#     enable = true;
#     package = pkgs.callPackage ./package.nix { };
#     settings = {
#       node = { name = "site-a"; addresses = [ "10.77.0.1/30" ]; private_key_file = "/var/lib/secrets/dwell.key"; };
#       peer = [ {
#         name = "site-b"; endpoint = "198.51.100.20:7733"; prefixes = [ "10.2.0.0/24" "10.77.0.2/32" ];
#         public_key = "Zy1j6hgjOc1uUhu4QmS0vhSUWhTHrsZ7vRriz3r2V2o=";
#       } ];
#     };
#   };
{ config, lib, pkgs, ... }:
let
  cfg = config.services.dwell;
  toml = pkgs.formats.toml { };
  file = toml.generate "relay.toml" cfg.settings;
in
{
  options.services.dwell = {
    enable = lib.mkEnableOption "dwell, a relay that compresses packets while they wait";
    package = lib.mkOption {
      type = lib.types.package;
      description = "The package that has bin/dwell.";
    };
    settings = lib.mkOption {
      type = toml.type;
      default = { };
      description = "What stands in relay.toml: docs/configuration.md has every key.";
    };
    openFirewall = lib.mkOption {
      type = lib.types.bool;
      default = true;
      description = "Lets UDP port 7733 in.";
    };
  };

  config = lib.mkIf cfg.enable {
    environment.systemPackages = [ cfg.package ];
    networking.firewall.allowedUDPPorts = lib.mkIf cfg.openFirewall [ 7733 ];
    boot.kernel.sysctl."net.ipv4.ip_forward" = lib.mkDefault 1;
    systemd.services.dwell = {
      description = "dwell, a relay that compresses packets while they wait";
      wantedBy = [ "multi-user.target" ];
      wants = [ "network-online.target" ];
      after = [ "network-online.target" ];
      # A changed configuration is read again by the relay that runs.
      reloadTriggers = [ file ];
      serviceConfig = {
        Type = "exec";
        ExecStartPre = "${cfg.package}/bin/dwell check /etc/dwell/relay.toml";
        ExecStart = "${cfg.package}/bin/dwell relay --config /etc/dwell/relay.toml";
        ExecReload = "${pkgs.coreutils}/bin/kill -HUP $MAINPID";
        Restart = "on-failure";
        RestartSec = 2;
        RuntimeDirectory = "dwell";
        StateDirectory = "dwell";
        CapabilityBoundingSet = [ "CAP_NET_ADMIN" ];
        NoNewPrivileges = true;
        DevicePolicy = "closed";
        DeviceAllow = [ "/dev/net/tun rw" ];
        ProtectSystem = "strict";
        ProtectHome = true;
        PrivateTmp = true;
      };
    };
    environment.etc."dwell/relay.toml".source = file;
  };
}
